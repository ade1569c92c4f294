"""What only some episodes have, prepared finishes, verdicts, and journals of the first schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import StateError
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.states import EpisodeState
from swarm.server.journal import schema
from swarm.server.journal.codec import pack_calls, unpack_calls
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import (
    AgentStats,
    CallVerdict,
    EpisodeDetails,
    GroupStats,
    TokenChoices,
)

DETAILS = EpisodeDetails(
    code_hash="v1",
    agents={"seer": True, "judge": False},
    rewards={"seer": 0.1},
    tokens=[TokenChoices(call_index=0, advantages=[1 / 3], weights=[0.0], mask=[False])],
    prepared_until=100.5,
    prepared_reward=-0.1,
    prepared_metrics={"m": 1.0},
    divergences=2,
    context_overflows=3,
)


def grant(journal: Journal, build: Any, name: str = "a") -> None:
    record = build.episode(name)
    record.details = EpisodeDetails(code_hash="v1")
    journal.record_grant(record)


def finish(journal: Journal, build: Any, name: str, **more: Any) -> None:
    journal.record_finish(name, reward=1.0, metrics={}, calls=[build.call()], ended_at=20.0, **more)


def test_details_come_back_as_they_were_from_grant_to_finish(journal: Journal, build: Any) -> None:
    grant(journal, build)
    assert journal.episode("a").details == EpisodeDetails(code_hash="v1")
    journal.record_details("a", DETAILS)
    assert journal.episode("a").details == DETAILS
    finish(journal, build, "a", details=DETAILS)
    trace = journal.episode("a").trace()
    assert (trace.code_hash, trace.agents) == ("v1", DETAILS.agents)
    assert trace.context_overflows == 3
    assert trace.rewards == {"seer": 0.1}
    with pytest.raises(StateError):
        journal.record_details("a", DETAILS)


def test_a_prepared_finish_is_open_with_its_calls_until_it_ends(
    journal: Journal, build: Any, path: Path
) -> None:
    for name in ("a", "b", "plain"):
        grant(journal, build, name)
    journal.record_prepared("a", DETAILS, [build.call(), build.call(1)])
    with pytest.raises(StateError):
        journal.record_prepared("a", DETAILS, [])
    journal.record_prepared("b", DETAILS, [])
    finish(journal, build, "plain")
    state = journal.load_state()
    assert state is not None
    assert [r.episode_id for r in state.prepared] == ["a", "b"]
    assert [len(r.calls) for r in state.prepared] == [2, 0]
    assert state.prepared[0].details == DETAILS
    assert (state.orphans, [r.episode_id for r in state.pool]) == ([], ["plain"])
    calls = [build.call(), build.call(1)]
    journal.record_finish("a", reward=-0.1, metrics={}, calls=calls, ended_at=30.0, prepared=True)
    journal.record_end(
        "b", state=EpisodeState.EXPIRED, reason="late", ended_at=31.0, dropped="not_committed",
        prepared=True,
    )  # fmt: skip
    journal.close()
    again = Journal.open(path)
    state = again.load_state()
    assert state is not None
    assert [r.episode_id for r in state.pool] == ["plain", "a"]  # in order of finishing
    assert (state.prepared, state.orphans) == ([], [])
    found = again.episode("a")
    assert (found.call_count, found.calls, found.reward) == (2, calls, -0.1)
    assert again.episode("b").dropped == "not_committed"
    again.close()


def test_verdicts_are_kept_with_the_batch_and_pruned_with_the_calls(
    journal: Journal, build: Any
) -> None:
    trained = [CallVerdict("trained", "", 0.5), CallVerdict("masked", "greedy_sampling")]
    own = [CallVerdict("trained", "", None, [0.1, -0.2])]
    for name, step in (("a", 1), ("b", 2)):
        grant(journal, build, name)
        finish(journal, build, name)
        journal.commit_batch(
            build.batch(step),
            episode_ids=[name],
            groups=[],
            verdicts={name: trained if name == "a" else own},
            groups_tried=7,
        )
        journal.commit_step(build.metrics(step))
    assert journal.verdicts("a") == trained
    assert journal.verdicts("b") == own
    assert journal.verdicts("none") == []
    step = journal.step_of("b")
    assert step is not None
    assert step.step == 2
    assert journal.step_of("none") is None
    assert [c.groups_tried for c in journal.committed_after(0)] == [7, 7]
    info = CheckpointInfo(step=1, policy_version=1, path="p", fingerprint="f")
    journal.record_checkpoint(info)
    journal.prune(1)
    assert journal.verdicts("a") == []
    assert journal.verdicts("b") == own


def test_group_statistics_of_agents_survive_a_batch(journal: Journal, build: Any) -> None:
    stats = GroupStats(
        group_id="g",
        task_set="s",
        task_id="t",
        episode_ids=["a"],
        rewards=[None],
        advantages=[0.0],
        agents={"seer": AgentStats(episode_ids=["a"], rewards=[1.0], advantages=[0.0])},
        code_hash="v1",
    )
    grant(journal, build)
    finish(journal, build, "a")
    journal.commit_batch(build.batch(1), episode_ids=["a"], groups=[stats])
    assert journal.committed_after(0)[0].groups == [stats]


def test_a_journal_of_the_first_schema_is_taken_up_with_all_that_it_holds(
    tmp_path: Path, build: Any
) -> None:
    path = tmp_path / "journal.sqlite"
    old = sqlite3.connect(path)
    old.executescript(
        f"CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;"
        f"INSERT INTO schema_version VALUES (1); {schema._V1}"
    )
    config = TrainConfig(engine="toy").model_dump_json()
    old.execute("INSERT INTO runs VALUES (1, 'inc', ?, 1.0)", (config,))
    old.execute(
        "INSERT INTO episodes (episode_id, run, kind, client_id, task_set, task_id, group_id, repeat_index, step, "
        "policy_version, granted_at, state, reward, ended_order, call_count) "
        "VALUES ('a', 1, 'train', 'c', 's', 't', 's0.g0', 0, 0, 0, 1.0, 'finished', 1.0, 1, 1)"
    )
    old.execute("INSERT INTO calls VALUES (1, ?)", (pack_calls([build.call()]),))
    old.commit()
    old.close()
    journal = Journal.open(path)
    state = journal.load_state()
    assert state is not None
    (record,) = state.pool
    assert (record.details, record.calls) == (EpisodeDetails(), [build.call()])
    grant(journal, build, "b")
    journal.record_prepared("b", DETAILS, [build.call()])
    finish(journal, build, "b", prepared=True)
    journal.commit_batch(
        build.batch(1),
        episode_ids=["a", "b"],
        groups=[],
        verdicts={"a": [CallVerdict("trained", "", 1.0)]},
    )
    assert journal.verdicts("a") == [CallVerdict("trained", "", 1.0)]
    journal.close()


def test_every_field_of_a_call_comes_back(build: Any) -> None:
    changed = {
        "guarded": 3,
        "tag": "title",
        "excluded": True,
        "dialect": "messages",
        "applied": {"top_p": 0.5},
        "kept": [[1, 2]],
        "unknown": ["x"],
        "raw_request": {"messages": []},
        "choice": 2,
        "replayable": False,
    }
    call = build.call().model_copy(update=changed)
    assert unpack_calls(pack_calls([call])) == [call]
