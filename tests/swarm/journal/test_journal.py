from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import JournalFailed, NotFoundError, StateError
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import EvalRound, GroupStats


def _finish(journal: Journal, build: Any, name: str, *, step: int = 0, reward: float = 1.0) -> None:
    journal.record_grant(build.episode(name, step=step))
    journal.record_finish(
        name, reward=reward, metrics={"turns": 2.0}, calls=[build.call()], ended_at=20.0
    )


def _checkpoint(step: int) -> CheckpointInfo:
    return CheckpointInfo(step=step, policy_version=step, path=f"ck{step}", fingerprint=f"fp{step}")


def test_a_finished_episode_comes_back_as_it_was(journal: Journal, build: Any) -> None:
    _finish(journal, build, "a", reward=0.1)
    found = journal.episode("a")
    assert found.state is EpisodeState.FINISHED
    assert (found.reward, found.metrics, found.ended_at) == (0.1, {"turns": 2.0}, 20.0)
    assert found.calls == [build.call()]
    assert found.calls[0].fate_reason is build.call().fate_reason
    trace = journal.episode("a", calls=False).trace()
    assert (trace.calls, trace.call_count, trace.repeat_index) == ([], 1, 1)


def test_an_episode_ends_once(journal: Journal, build: Any) -> None:
    _finish(journal, build, "a")
    with pytest.raises(StateError):
        journal.record_end("a", state=EpisodeState.ABORTED, reason="late", ended_at=30.0)
    with pytest.raises(StateError):
        journal.record_finish("never", reward=1.0, metrics={}, calls=[], ended_at=1.0)
    assert journal.episode("a").state is EpisodeState.FINISHED


def test_an_aborted_episode_keeps_its_reason_and_calls(journal: Journal, build: Any) -> None:
    journal.record_grant(build.episode("a"))
    journal.record_end(
        "a", state=EpisodeState.EXPIRED, reason="idle", ended_at=30.0, calls=[build.call()]
    )
    found = journal.episode("a")
    assert (found.state, found.reason, len(found.calls)) == (EpisodeState.EXPIRED, "idle", 1)
    assert found.trace().reason == "idle"


def test_an_unknown_episode_is_not_found(journal: Journal) -> None:
    with pytest.raises(NotFoundError):
        journal.episode("nobody")


def test_the_same_grant_twice_is_refused(journal: Journal, build: Any) -> None:
    journal.record_grant(build.episode("a"))
    with pytest.raises(JournalFailed, match="already holds"):
        journal.record_grant(build.episode("a"))


def test_nothing_is_recorded_before_a_run_is_configured(path: Path, build: Any) -> None:
    journal = Journal.open(path)
    with pytest.raises(StateError, match="no run"):
        journal.record_grant(build.episode("a"))
    assert journal.load_state() is None
    assert journal.config() is None
    journal.close()


def test_a_batch_consumes_its_episodes_and_keeps_every_number_exactly(
    journal: Journal, build: Any
) -> None:
    for name in ("a", "b", "c"):
        _finish(journal, build, name)
    stats = GroupStats(
        group_id="s0.g0",
        task_set="sums",
        task_id="t",
        episode_ids=["b", "a"],
        rewards=[1.0, 0.1],
        advantages=[1 / 3, -1 / 3],
    )
    journal.commit_batch(
        build.batch(1), episode_ids=["b", "a"], groups=[stats], dropped={"c": "leftover"}
    )
    (committed,) = journal.committed_after(0)
    assert committed.batch == build.batch(1)
    assert (committed.episode_ids, committed.groups) == (["b", "a"], [stats])
    assert journal.batches_after(0) == [build.batch(1)]
    assert journal.batches_after(1) == []
    assert journal.episode("a").consumed_step == 1
    assert journal.episode("c").dropped == "leftover"


@pytest.mark.parametrize("second", ["a", "open", "eval", "dropped", "nobody"])
def test_a_batch_that_cannot_consume_all_its_episodes_leaves_no_trace(
    journal: Journal, build: Any, second: str
) -> None:
    _finish(journal, build, "a")
    _finish(journal, build, "b")
    _finish(journal, build, "dropped")
    journal.drop_episodes({"dropped": "leftover"})
    journal.record_grant(build.episode("open"))
    journal.record_eval(build.episode("eval", kind=EpisodeKind.EVAL))
    journal.commit_batch(build.batch(1), episode_ids=["a"], groups=[])
    with pytest.raises(StateError, match="batch 2"):
        journal.commit_batch(build.batch(2), episode_ids=["b", second], groups=[])
    assert journal.batches_after(1) == []
    assert journal.episode("b").consumed_step is None


def test_the_same_step_cannot_be_consumed_twice(journal: Journal, build: Any) -> None:
    _finish(journal, build, "a")
    journal.commit_batch(build.batch(1), episode_ids=[], groups=[])
    with pytest.raises(JournalFailed):
        journal.commit_batch(build.batch(1), episode_ids=["a"], groups=[])
    assert journal.episode("a").consumed_step is None


def test_step_metrics_come_back_with_missing_as_none(journal: Journal, build: Any) -> None:
    for step in (1, 2, 3):
        journal.commit_step(build.metrics(step))
    journal.commit_step(build.metrics(3))
    assert journal.step_metrics(1) == [build.metrics(2), build.metrics(3)]
    assert journal.step_metrics(3) == []


def test_pruning_keeps_what_resuming_and_evaluation_need(journal: Journal, build: Any) -> None:
    for step in range(1, 5):
        _finish(journal, build, f"t{step}", step=step - 1)
        _finish(journal, build, f"left{step}", step=step - 1)
        evaluated = build.episode(f"e{step}", step=step - 1, kind=EpisodeKind.EVAL)
        evaluated.calls, evaluated.state = [build.call()], EpisodeState.FINISHED
        journal.record_eval(evaluated)
        journal.commit_batch(
            build.batch(step),
            episode_ids=[f"t{step}"],
            groups=[],
            dropped={f"left{step}": "leftover"},
        )
        journal.commit_step(build.metrics(step))
        journal.record_checkpoint(_checkpoint(step))
    assert journal.prune(keep=2) == [_checkpoint(1), _checkpoint(2)]
    assert journal.prune(keep=2) == []
    assert journal.checkpoints() == [_checkpoint(3), _checkpoint(4)]
    assert [batch.step for batch in journal.batches_after(0)] == [4]
    assert [len(journal.episode(f"t{k}").calls) for k in range(1, 5)] == [0, 0, 0, 1]
    assert [len(journal.episode(f"left{k}").calls) for k in range(1, 5)] == [0, 0, 0, 1]
    assert journal.episode("t1").call_count == 1
    assert [len(e.calls) for e in journal.eval_episodes(calls=True)] == [1, 1, 1, 1]
    assert len(journal.step_metrics()) == 4


def test_pruning_without_a_checkpoint_deletes_nothing(journal: Journal, build: Any) -> None:
    _finish(journal, build, "a")
    journal.commit_batch(build.batch(1), episode_ids=["a"], groups=[])
    assert journal.prune(keep=1) == []
    assert len(journal.batches_after(0)) == 1


def test_eval_episodes_are_found_by_step_version_and_set(journal: Journal, build: Any) -> None:
    for name, step in (("x", 0), ("y", 5), ("z", 5)):
        episode = build.episode(name, step=step, kind=EpisodeKind.EVAL)
        journal.record_grant(episode)
        episode.state, episode.reward, episode.calls = EpisodeState.FINISHED, 0.5, [build.call()]
        journal.record_eval(episode)
        journal.record_eval(episode)
    assert [e.episode_id for e in journal.eval_episodes()] == ["x", "y", "z"]
    assert [e.episode_id for e in journal.eval_episodes(step=5)] == ["y", "z"]
    assert journal.eval_episodes(policy_version=0)[0].calls == []
    assert journal.eval_episodes(task_set="other") == []
    assert journal.episode("y").calls == [build.call()]
    journal.close_eval_round(EvalRound(step=5, planned=2, completed=1, missed=True))
    journal.close_eval_round(EvalRound(step=5, planned=2, completed=2, missed=False))
    assert journal.eval_rounds() == [EvalRound(step=5, planned=2, completed=2, missed=False)]


def test_events_are_numbered_without_gaps_across_a_restart(path: Path, journal: Journal) -> None:
    first = journal.event("boot", {"reason": "é", "n": 1})
    journal.event("grant")
    journal.close()
    again = Journal.open(path)
    third = again.event("resume")
    assert [first.seq, third.seq] == [1, 3]
    assert [e.kind for e in again.events_after(1)] == ["grant", "resume"]
    assert again.events_after(0, limit=1) == [first]
    again.close()


def test_cursors_keep_the_last_word_of_each_client(journal: Journal) -> None:
    journal.set_cursor("b", {"step": 1})
    journal.set_cursor("a", {"role": "trainer"})
    journal.set_cursor("b", {"step": 2})
    assert journal.cursors() == {"a": {"role": "trainer"}, "b": {"step": 2}}


def test_a_new_incarnation_starts_with_nothing_of_the_old(journal: Journal, build: Any) -> None:
    _finish(journal, build, "old")
    journal.commit_batch(build.batch(1), episode_ids=["old"], groups=[])
    journal.commit_step(build.metrics(1))
    journal.record_checkpoint(_checkpoint(1))
    journal.set_config(TrainConfig(run_name="second"), "inc-2")
    state = journal.load_state()
    assert state is not None
    assert (state.incarnation, state.config.run_name, state.step) == ("inc-2", "second", 0)
    assert (state.metrics, state.checkpoint, state.replay, state.pool) == ([], None, [], [])
    journal.commit_batch(build.batch(1), episode_ids=[], groups=[])
    assert journal.episode("old").consumed_step == 1


def test_a_resumed_run_knows_step_pool_replay_and_orphans(
    path: Path, journal: Journal, build: Any
) -> None:
    for step in (1, 2, 3):
        _finish(journal, build, f"t{step}", step=step - 1)
        journal.commit_batch(build.batch(step), episode_ids=[f"t{step}"], groups=[])
        journal.commit_step(build.metrics(step))
    journal.record_checkpoint(_checkpoint(1))
    _finish(journal, build, "pool-b", step=3)
    _finish(journal, build, "pool-a", step=3)
    _finish(journal, build, "dropped", step=3)
    journal.drop_episodes({"dropped": "group_dropped"})
    journal.record_grant(build.episode("open", step=3))
    journal.set_config(TrainConfig(run_name="first", seed=4, stop_at_step=60), "inc-1")
    journal.event("tick")
    journal.close()

    reopened = Journal.open(path)
    state = reopened.load_state()
    assert state is not None
    assert (state.step, state.policy_version, state.fingerprint) == (3, 3, "fp3")
    assert (state.incarnation, state.config.stop_at_step) == ("inc-1", 60)
    assert state.checkpoint == _checkpoint(1)
    assert [c.batch.step for c in state.replay] == [2, 3]
    assert state.pending is None
    assert [e.episode_id for e in state.pool] == ["pool-b", "pool-a"]
    assert state.pool[0].calls == [build.call()]
    assert [e.episode_id for e in state.orphans] == ["open"]
    assert state.last_event_seq == 1
    reopened.close()


def test_a_batch_without_its_metrics_is_pending(journal: Journal, build: Any) -> None:
    journal.commit_batch(build.batch(1), episode_ids=[], groups=[])
    journal.commit_step(build.metrics(1))
    journal.commit_batch(build.batch(2), episode_ids=[], groups=[])
    state = journal.load_state()
    assert state is not None
    assert state.pending is not None
    assert (state.step, state.pending.batch.step) == (1, 2)
    assert state.pending == state.replay[-1]
