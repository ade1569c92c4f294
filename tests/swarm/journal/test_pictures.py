import hashlib
import sqlite3

import pytest

from swarm.protocol.errors import JournalFailed
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.states import EpisodeState
from swarm.server.journal import schema
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import EpisodeDetails
from swarm.server.ports import TrainBatch

RED, BLUE = b"red" * 1000, b"blue" * 1000


def digest(data):
    return hashlib.sha256(data).hexdigest()


def named(*pictures):
    return {digest(data): data for data in pictures}


def finish(journal, build, episode_id, *pictures, step=0):
    journal.record_grant(build.episode(episode_id, step=step))
    ended = {"reward": 1.0, "metrics": {}, "ended_at": 1.0}
    journal.record_finish(episode_id, calls=[build.call()], pictures=named(*pictures), **ended)


def consume(journal, build, step, episode_id, *pictures):
    batch = build.batch(step)
    batch.rows[0].images = list(pictures)
    journal.commit_batch(batch, episode_ids=[episode_id], groups=[])
    journal.commit_step(build.metrics(step))
    return batch


def stored(journal):
    return {row[0].hex() for row in journal._db.rows("SELECT sha256 FROM pictures")}


def test_a_picture_lies_in_the_journal_once_whoever_sent_it(journal, build, path):
    finish(journal, build, "a", RED, BLUE)
    finish(journal, build, "b", RED)
    assert journal.pictures([digest(RED), digest(BLUE)]) == named(RED, BLUE)
    consume(journal, build, 1, "a", RED, BLUE, RED)
    bodies = journal._db.rows("SELECT body FROM pictures")
    assert len(bodies) == 2
    assert RED not in journal._db.rows("SELECT body FROM batches")[0][0]


def test_a_batch_comes_back_with_its_pictures_after_a_restart(journal, build, path):
    finish(journal, build, "a", RED, BLUE)
    batch = consume(journal, build, 1, "a", BLUE, RED)
    assert batch.rows[0].images == [BLUE, RED]  # what the engine gets is as it was
    journal.close()
    reopened = Journal.open(path)
    assert reopened.batches_after(0) == [batch]
    state = reopened.load_state()
    assert state is not None
    assert [c.batch for c in state.replay] == [batch]
    reopened.close()


def test_pictures_go_with_the_last_call_that_names_them(journal, build):
    finish(journal, build, "a", RED, BLUE)
    consume(journal, build, 1, "a", RED, BLUE)
    finish(journal, build, "b", RED, step=1)
    consume(journal, build, 2, "b", RED)
    for step in (1, 2):
        info = CheckpointInfo(step=step, policy_version=step, path=f"p{step}", fingerprint="f")
        journal.record_checkpoint(info)
    journal.prune(2)
    assert stored(journal) == {digest(RED)}  # BLUE was only the first step's
    assert journal.batches_after(1)[0].rows[0].images == [RED]
    journal.prune(1)
    assert stored(journal) == set()


def test_pictures_follow_a_prepared_finish_to_its_place(journal, build):
    journal.record_grant(build.episode("a"))
    details = EpisodeDetails(prepared_until=9.0)
    journal.record_prepared("a", details, [build.call()], named(RED))
    finish(journal, build, "b")  # takes a later place
    ended = {"reward": 1.0, "metrics": {}, "ended_at": 1.0, "calls": [build.call()]}
    journal.record_finish("a", prepared=True, **ended)
    consume(journal, build, 1, "b")
    info = CheckpointInfo(step=1, policy_version=1, path="p", fingerprint="f")
    journal.record_checkpoint(info)
    journal.prune(1)
    assert journal.pictures([digest(RED)]) == named(RED)


def test_a_lost_episode_keeps_its_pictures_as_long_as_its_calls(journal, build):
    journal.record_grant(build.episode("a"))
    journal.record_end(
        "a",
        state=EpisodeState.ABORTED,
        reason="x",
        ended_at=1.0,
        calls=[build.call()],
        pictures=named(RED),
    )
    assert journal.pictures([digest(RED)]) == named(RED)


def test_nothing_of_a_finish_that_is_refused_is_kept(journal, build):
    finish(journal, build, "a")
    ended = {"reward": 1.0, "metrics": {}, "ended_at": 1.0, "calls": [build.call()]}
    with pytest.raises(Exception, match="not open"):
        journal.record_finish("a", pictures=named(RED), **ended)
    assert stored(journal) == set()


def test_a_picture_that_is_not_there_is_damage_and_not_an_empty_picture(journal):
    with pytest.raises(JournalFailed, match="picture"):
        journal.pictures([digest(RED)])


def test_a_journal_of_before_pictures_is_read_and_takes_them(journal, build, path):
    finish(journal, build, "a")
    batch = TrainBatch(step=1, policy_version=1, rows=build.batch(1).rows)
    journal.commit_batch(batch, episode_ids=["a"], groups=[])
    journal.close()
    old = sqlite3.connect(path)
    old.executescript(
        "DROP TABLE call_pictures; DROP TABLE pictures; UPDATE schema_version SET version = 2"
    )
    old.close()
    reopened = Journal.open(path)
    assert reopened.batches_after(0) == [batch]
    finish(reopened, build, "b", RED)
    assert reopened.pictures([digest(RED)]) == named(RED)
    assert schema.VERSION == 3
    reopened.close()
