"""The auditor itself: it finds a planted loss, a planted double and other weights, and nothing where nothing is."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import msgspec
import pytest

from swarm.server.journal.journal import JOURNAL_FILE
from swarm.server.journal.records import CommittedBatch
from swarm.testing import ToyEngine
from swarm.testing.chaos.audit import audit, fingerprints
from swarm.testing.chaos.ledger import Claim


def edit(folder, sql, *values):
    """Change the journal behind its back."""
    with closing(sqlite3.connect(folder / JOURNAL_FILE)) as connection:
        changed = connection.execute(sql, values).rowcount
        connection.commit()
    assert changed == 1


def change_batch(folder, step, change):
    """Rewrite a committed batch."""
    with closing(sqlite3.connect(folder / JOURNAL_FILE)) as connection:
        (body,) = connection.execute("SELECT body FROM batches WHERE step = ?", (step,)).fetchone()
        batch = msgspec.msgpack.decode(body, type=CommittedBatch)
        change(batch)
        body = msgspec.msgpack.encode(batch)
        connection.execute("UPDATE batches SET body = ? WHERE step = ?", (body, step))
        connection.commit()
    return batch


def test_a_run_in_which_nothing_broke_is_clean(played):
    folder, claims = played
    findings = audit(folder, claims, expected=fingerprints(folder), engine=ToyEngine())
    assert findings.clean, findings
    assert (findings.episodes, findings.steps) == (8, 2)


def test_an_acknowledged_episode_that_the_journal_does_not_know_is_lost(played):
    folder, claims = played
    phantom = Claim("ep-phantom", 1.0, answered=True, accepted=True)
    findings = audit(folder, {**claims, phantom.episode_id: phantom})
    assert [text.partition(":")[0] for text in findings.lost] == ["ep-phantom"]


def test_an_acknowledged_episode_whose_record_is_gone_is_lost(played):
    folder, claims = played
    gone = next(iter(claims))
    edit(folder, "UPDATE episodes SET state = 'aborted' WHERE episode_id = ?", gone)
    findings = audit(folder, claims)
    assert [text.partition(":")[0] for text in findings.lost] == [gone]


def test_an_acknowledged_episode_that_no_batch_took_is_lost(played):
    folder, claims = played
    taken = change_batch(folder, 2, lambda batch: batch.episode_ids.pop())
    assert len(taken.episode_ids) == 3
    findings = audit(folder, claims)
    assert len(findings.lost) == 1
    assert "neither consumed nor waiting" in findings.lost[0]


def test_another_reward_than_was_sent_is_a_loss(played):
    folder, claims = played
    name, claim = next(iter(claims.items()))
    findings = audit(folder, {**claims, name: replace(claim, reward=claim.reward + 1)})
    assert [text.partition(":")[0] for text in findings.lost] == [name]


def test_an_episode_in_two_batches_is_doubled(played):
    folder, claims = played
    first = change_batch(folder, 1, lambda _batch: None).episode_ids[0]
    change_batch(folder, 2, lambda batch: batch.episode_ids.append(first))
    findings = audit(folder, claims)
    assert findings.doubled == [f"{first} was consumed 2 times"]


def test_a_row_that_is_trained_twice_in_one_batch_is_doubled(played):
    folder, claims = played
    change_batch(folder, 1, lambda batch: batch.batch.rows.append(batch.batch.rows[0]))
    findings = audit(folder, claims)
    assert len(findings.doubled) == 1
    assert "is in batch 1 2 times" in findings.doubled[0]


def test_a_seat_that_two_episodes_took_is_doubled(played):
    folder, claims = played
    seats = [c for c in claims if claims[c].accepted][:2]
    edit(folder, "UPDATE episodes SET repeat_index = 0 WHERE episode_id = ?", seats[1])
    findings = audit(folder, claims)
    assert len(findings.doubled) == 1
    assert seats[0] in findings.doubled[0]
    assert seats[1] in findings.doubled[0]


def test_a_batch_that_moved_the_weights_otherwise_than_once_is_found(played):
    folder, claims = played

    def heavier(batch):
        batch.batch.rows[0].weight *= 2

    change_batch(folder, 2, heavier)
    assert audit(folder, claims).clean
    findings = audit(folder, claims, engine=ToyEngine())
    assert findings.wrong == ["after step 2 the weights are not what its batch makes"]


def test_a_missing_step_is_found(played):
    folder, claims = played
    edit(folder, "DELETE FROM step_metrics WHERE step = 1")
    assert "step history" in audit(folder, claims).wrong[0]


def test_an_episode_that_no_client_finished_is_found(played):
    folder, claims = played
    name = next(iter(claims))
    without = {key: claim for key, claim in claims.items() if key != name}
    assert audit(folder, without).wrong == [f"{name} was consumed and no client finished it"]


@pytest.mark.parametrize("expected", [["other", "weights"], [], ["a", "b", "c"]])
def test_weights_that_are_not_the_undisturbed_runs_are_found(played, expected):
    folder, claims = played
    findings = audit(folder, claims, expected=expected)
    assert findings.wrong
    assert not findings.lost
    assert not findings.doubled


def test_a_finish_that_was_sent_and_never_answered_may_be_there_or_not(played):
    folder, claims = played
    name, claim = next(iter(claims.items()))
    unsure = {
        **claims,
        name: replace(claim, answered=False, accepted=False),
        "ep-never-arrived": Claim("ep-never-arrived", 1.0),
    }
    assert audit(folder, unsure).clean
