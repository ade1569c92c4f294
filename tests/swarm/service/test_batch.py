"""From groups to rows, by hand: agents, the client's own advantages, weights and masks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from swarm.protocol.config import AlgorithmConfig, AsyncConfig, BatchConfig, TrainConfig
from swarm.protocol.records import CallRecord
from swarm.protocol.states import FateReason, TokenFate
from swarm.server.journal.records import EpisodeDetails, TokenChoices
from swarm.server.service.batch import plan_step
from swarm.server.service.finish_check import masked_calls
from swarm.server.service.metrics import Ledger, Marks
from swarm.server.service.returns import trainable
from swarm.server.tracking.account import TRAINED, masked

PLAIN = TrainConfig(engine="toy", algorithm=AlgorithmConfig(name="grpo_no_std"))


@dataclass
class Member:
    """A finished episode as the plan sees it."""

    episode_id: str
    reward: float | None
    calls: list[CallRecord]
    details: EpisodeDetails = field(default_factory=EpisodeDetails)
    repeat_index: int = 0
    task_set: str = "set"
    task_id: str = "t"
    group_id: str = "s0.g0"
    client_id: str = "c"


def call(index, ids, *, agent="", prompt=(1, 2), temperature=1.0, **more) -> CallRecord:
    values = {
        "index": index,
        "policy_version": 3,
        "messages": [{"role": "user", "content": agent}],
        "reply": {"role": "assistant", "content": "x"},
        "finish_reason": "stop",
        "prompt_ids": list(prompt),
        "sampled_ids": list(ids),
        "logprobs": [-0.1 * token for token in ids],
        "temperature": temperature,
        "max_tokens": 8,
        "agent": agent,
    }
    return CallRecord(**(values | more))


def member(name, reward, *calls, tokens=(), repeat_index=0, **details) -> Member:
    choices = list(tokens)
    marked = masked_calls(list(calls), choices)
    return Member(
        name, reward, marked, EpisodeDetails(tokens=choices, **details), repeat_index=repeat_index
    )


def plan(*members, config=PLAIN):
    return plan_step(config, [("s0.g0", list(members))])


def book(planned, *members):
    ledger = Ledger()
    for one in members:
        ledger.book(one.calls, planned.fates[one.episode_id], Marks())
    return ledger


def test_each_agent_has_its_own_baseline_and_its_own_rows():
    seats = {"seer": True, "wolf": True}
    a = member(
        "a",
        None,
        call(0, [10, 11], agent="seer"),
        call(1, [12], agent="wolf"),
        agents=seats,
        rewards={"seer": 1.0, "wolf": 0.0},
    )
    b = member(
        "b",
        None,
        call(0, [13], agent="seer"),
        call(1, [14], agent="wolf"),
        repeat_index=1,
        agents=seats,
        rewards={"seer": 0.0, "wolf": 4.0},
    )
    found = plan(a, b)
    rows = {tuple(row.ids[2:]): row.advantage for row in found.rows}
    assert rows == {(10, 11): 0.5, (12,): -2.0, (13,): -0.5, (14,): 2.0}
    assert {row.weight for row in found.rows} == {1 / 5}
    told = {tuple(row.ids[2:]): (row.agent, row.reward) for row in found.rows}
    assert told[10, 11] == ("seer", 1.0)
    assert told[14,] == ("wolf", 4.0)
    stats = found.groups[0]
    assert stats.rewards == [None, None]
    assert stats.agents["seer"].advantages == [0.5, -0.5]
    assert stats.agents["wolf"].rewards == [0.0, 4.0]
    assert found.consumed.agents == {"seer": [1.0, 0.0], "wolf": [0.0, 4.0]}
    assert found.consumed.rewards == []
    assert book(found, a, b).agent_counts() == {"seer": {"trained": 3}, "wolf": {"trained": 2}}


def test_calls_of_two_agents_never_merge_into_one_row():
    first = call(0, [10], agent="seer", prompt=(1, 2))
    second = call(1, [11], agent="wolf", prompt=(1, 2, 10, 5))
    third = call(2, [12], agent="seer", prompt=(1, 2, 10, 5))
    seats = {"seer": True, "wolf": True}
    a = member("a", 1.0, first, second, third, agents=seats)
    b = member("b", 0.0, call(0, [13], agent="seer"), repeat_index=1, agents=seats)
    rows = [row.ids for row in plan(a, b).rows]
    assert rows == [[1, 2, 10, 5, 12], [1, 2, 13]]  # the wolf is alone in its group: no preference


def test_an_agent_that_is_not_trained_is_masked_with_that_reason_and_has_no_statistics():
    seats = {"judge": False}
    a = member("a", 1.0, call(0, [10]), call(1, [11, 12], agent="judge"), agents=seats)
    b = member("b", 0.0, call(0, [13]), repeat_index=1, agents=seats)
    found = plan(a, b)
    assert found.fates["a"] == [TRAINED, masked(FateReason.AGENT_NOT_TRAINED)]
    assert [row.ids for row in found.rows] == [[1, 2, 10], [1, 2, 13]]
    assert "judge" not in found.groups[0].agents
    assert book(found, a, b).token_counts() == {"masked:agent_not_trained": 2, "trained": 2}


def test_an_agent_of_equal_rewards_is_masked_while_another_trains():
    seats = {"seer": True, "wolf": True}
    members = [
        member(
            name,
            None,
            call(0, [10], agent="seer"),
            call(1, [11], agent="wolf"),
            repeat_index=i,
            agents=seats,
            rewards={"seer": float(i), "wolf": 1.0},
        )
        for i, name in enumerate("ab")
    ]
    found = plan(*members)
    assert found.fates["a"] == [TRAINED, masked(FateReason.ZERO_ADVANTAGE)]
    assert found.consumed.zero_advantage == 0
    assert book(found, *members).agent_counts()["wolf"] == {"masked:zero_advantage": 2}


def test_an_agents_statistics_leave_out_members_in_which_it_did_not_act():
    seats = {"seer": True}
    a = member("a", 1.0, call(0, [10], agent="seer"), agents=seats)
    b = member("b", 0.0, call(0, [11], agent="seer"), repeat_index=1, agents=seats)
    silent = member("c", 100.0, call(0, [12]), repeat_index=2, agents=seats)
    found = plan(a, b, silent)
    assert [row.advantage for row in found.rows] == [0.5, -0.5]
    assert found.groups[0].agents["seer"].episode_ids == ["a", "b"]
    assert found.fates["c"] == [masked(FateReason.ZERO_ADVANTAGE)]  # alone under its own key
    assert found.consumed.zero_advantage == 1


def test_own_advantages_train_token_by_token_also_where_the_group_says_nothing():
    chosen = TokenChoices(call_index=0, advantages=[0.5, -0.25])
    a = member("a", 1.0, call(0, [10, 11]), call(1, [12], prompt=(7,)), tokens=[chosen])
    b = member("b", 1.0, call(0, [13]), repeat_index=1)
    found = plan(a, b)
    (row,) = found.rows
    assert (row.ids, row.advantages, row.weight) == ([1, 2, 10, 11], [0.5, -0.25], 1 / 2)
    zero = masked(FateReason.ZERO_ADVANTAGE)
    assert found.fates == {"a": [TRAINED, zero], "b": [zero]}
    assert found.advantages["a"] == [[0.5, -0.25], []]
    assert trainable([a, b])
    assert not trainable([b])


def test_own_advantages_and_the_groups_stand_side_by_side_in_one_row():
    chosen = TokenChoices(call_index=1, advantages=[9.0])
    first = call(0, [10])
    second = call(1, [11], prompt=(1, 2, 10, 3))
    a = member("a", 1.0, first, second, tokens=[chosen])
    b = member("b", 0.0, call(0, [12]), repeat_index=1)
    row = plan(a, b).rows[0]
    assert row.ids == [1, 2, 10, 3, 11]
    assert row.advantages == [0.5, 9.0]


def test_weights_multiply_and_a_weight_of_zero_or_a_mask_leaves_the_token_out():
    chosen = TokenChoices(
        call_index=0, weights=[2.0, 0.0, 0.5, 1.0], mask=[True, True, True, False]
    )
    a = member("a", 1.0, call(0, [10, 11, 12, 13]), tokens=[chosen])
    b = member("b", 0.0, call(0, [14]), repeat_index=1)
    found = plan(a, b)
    row = found.rows[0]
    assert [(s.start, s.end) for s in row.spans] == [(2, 3), (4, 5)]
    assert row.ids == [1, 2, 10, 11, 12, 13]
    assert row.weights == [2.0, 0.5]
    assert row.logprobs == pytest.approx([-1.0, -1.2])
    assert row.weight == 1 / 3  # tokens are counted, not weights
    assert book(found, a, b).token_counts() == {"masked:client_mask": 2, "trained": 3}


def test_a_call_all_of_whose_tokens_are_masked_is_context_only():
    chosen = TokenChoices(call_index=0, mask=[False, False])
    a = member(
        "a", 1.0, call(0, [10, 11]), call(1, [12], prompt=(1, 2, 10, 11, 3)), tokens=[chosen]
    )
    b = member("b", 0.0, call(0, [13]), repeat_index=1)
    found = plan(a, b)
    assert found.fates["a"] == [masked(FateReason.CLIENT_MASK), TRAINED]
    assert [(s.start, s.end) for s in found.rows[0].spans] == [(5, 6)]
    assert book(found, a, b).token_counts() == {"masked:client_mask": 2, "trained": 2}


def test_own_advantages_of_a_greedy_or_untrained_call_do_not_train_it():
    chosen = [TokenChoices(call_index=i, advantages=[1.0]) for i in range(2)]
    a = member(
        "a",
        1.0,
        call(0, [10], temperature=0.0),
        call(1, [11], agent="judge"),
        tokens=chosen,
        agents={"judge": False},
    )
    found = plan(a)
    assert found.rows == []
    assert [fate.reason for fate in found.fates["a"]] == [
        FateReason.GREEDY,
        FateReason.AGENT_NOT_TRAINED,
    ]
    assert not trainable([a])


def test_rows_tell_the_version_of_each_trained_token_in_asynchronous_mode():
    config = PLAIN.model_copy(update={"asynchronous": AsyncConfig(enabled=True)})
    first = call(0, [10, 11], token_versions=[3, 4])
    second = call(1, [12], prompt=(1, 2, 10, 11, 5), policy_version=5)
    members = (
        member("a", 1.0, first, second, tokens=[TokenChoices(call_index=0, mask=[False, True])]),
        member("b", 0.0, call(0, [13]), repeat_index=1),
    )
    assert [row.versions for row in plan(*members, config=config).rows] == [[4, 5], [3]]
    assert [row.versions for row in plan(*members).rows] == [[], []]


def test_verdicts_say_what_each_call_came_to():
    chosen = TokenChoices(call_index=1, advantages=[1.0, 2.0])
    a = member("a", 1.0, call(0, [10, 11]), call(1, [12, 13], prompt=(7,)), tokens=[chosen])
    b = member("b", 0.0, call(0, [14], temperature=0.0), repeat_index=1)
    verdicts = plan(a, b).verdicts()
    trained, own = verdicts["a"]
    assert (trained.fate, trained.advantage, trained.advantages) == ("trained", 0.5, [])
    assert (own.advantage, own.advantages) == (None, [1.0, 2.0])
    (greedy,) = verdicts["b"]
    assert (greedy.fate, greedy.reason) == (TokenFate.MASKED, FateReason.GREEDY)
    assert (greedy.advantage, greedy.advantages) == (None, [])


def test_consumed_counts_are_per_task_set_and_client():
    groups = [
        (
            f"s0.g{i}",
            [
                Member(
                    f"e{i}{j}",
                    float(j),
                    [call(0, [9])],
                    group_id=f"s0.g{i}",
                    task_set=name,
                    client_id=f"c{j}",
                )
                for j in range(2)
            ],
        )
        for i, name in enumerate(("math", "math", "code"))
    ]
    consumed = plan_step(PLAIN, groups).consumed
    assert consumed.task_sets == {"code": 1, "math": 2}
    assert consumed.clients == {"c0": 3, "c1": 3}
    assert consumed.agents == {}
    by_episode = PLAIN.model_copy(update={"batch": BatchConfig(policy="C1")})
    assert plan_step(by_episode, groups).consumed.task_sets == {"code": 2, "math": 4}
