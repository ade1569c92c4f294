"""The calculator game: its problems, its tool, its score, its two agents."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.client import AsyncSwarmClient, Task, run_eval_async
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.server.ports import GenerateRequest
from swarm.tasks import calculator as game
from swarm.testing.live_server import live_server
from swarm.testing.toy_engine import ToyFleet

TASK = Task("t", {"operands": [37, 48, 25], "answer": 110})


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def trace(*replies: tuple[dict[str, Any], str], task_id: str = "t") -> EpisodeTrace:
    calls = [
        CallRecord(
            index=i,
            policy_version=0,
            messages=[],
            reply=reply,
            finish_reason=finish,
            prompt_ids=[],
            sampled_ids=[],
            logprobs=[],
            temperature=1.0,
            max_tokens=1,
        )
        for i, (reply, finish) in enumerate(replies)
    ]
    values = {
        "episode_id": "e",
        "kind": "eval",
        "state": "finished",
        "client_id": "c",
        "task_set": "s",
    }
    place = {"task_id": task_id, "group_id": "g", "repeat_index": 0, "step": 0, "policy_version": 0}
    return EpisodeTrace.model_validate({**values, **place, "granted_at": 0.0, "calls": calls})


def test_problems_are_a_pure_function_of_seed_and_index() -> None:
    tasks = game.CalculatorTasks(seed=3)
    assert tasks[41] == game.CalculatorTasks(seed=3)[41]
    assert tasks[41] != game.CalculatorTasks(seed=4)[41]
    assert len({tasks[i].task_id for i in range(200)}) == 200
    with pytest.raises(IndexError):
        _ = tasks[len(tasks)]


def test_operands_have_the_promised_sizes() -> None:
    for index in range(300):
        operands = game.draw("train", 0, index)
        assert len(operands) in game.OPERANDS
        assert len({len(str(n)) for n in operands}) == 1
        assert len(str(operands[0])) in game.DIGITS


def test_held_out_problems_differ_and_never_occur_in_training() -> None:
    items = game.held_out(400)
    assert len({tuple(t.payload["operands"]) for t in items}) == 400
    train = game.CalculatorTasks(exclude=items)
    sample = [train[i] for i in range(2000)]
    assert game.overlap(sample, items) == 0
    # Without the exclusion the small problems do meet, so the line above shows something.
    assert game.overlap([game.CalculatorTasks(exclude=[])[i] for i in range(2000)], items) > 0


def test_the_item_set_hash_knows_order_ids_and_operands() -> None:
    items = game.held_out(5)
    assert game.item_set_hash(items) == game.item_set_hash(game.held_out(5))
    assert game.item_set_hash(items) != game.item_set_hash(items[::-1])
    assert game.item_set_hash(items) != game.item_set_hash(game.held_out(5, seed=1))


@given(a=st.integers(0, 999_999), b=st.integers(0, 999_999))
def test_the_tool_adds_two_numbers(a: int, b: int) -> None:
    assert game.add(f"{a}+{b}") == str(a + b)


@pytest.mark.parametrize(
    "bad", ["", "1", "1+2+3", "1+-2", "1.0+2", "1000000+1", "a+b", "1 + 2", "1++2", "²+1"]
)
def test_the_tool_refuses_everything_else(bad: str) -> None:
    assert game.add(bad) == game.ERROR


@pytest.mark.parametrize("bad", ["", "{}", "[1]", '{"expression": 3}', "not json", "null"])
def test_arguments_that_are_no_expression_are_an_error(bad: str) -> None:
    assert game.answer_tool_call(bad) == game.ERROR


def test_the_environment_answers_tools_errors_and_endings() -> None:
    call = [("id1", '{"expression": "37+48"}')]
    assert game.next_messages("", call, "tool_calls") == [
        {"role": "tool", "tool_call_id": "id1", "content": "85"}
    ]
    error = [{"role": "user", "content": game.ERROR}]
    assert game.next_messages("11", [], "length") == error
    assert game.next_messages("", call, "length") == error
    assert game.next_messages("<tool_call>37+48", [], "stop") == error
    assert game.next_messages("110", [], "stop") == []


def test_the_score_is_one_for_the_right_sum_as_plain_text() -> None:
    assert game.score(TASK, [said(" 110\n")]) == 1.0
    assert game.score(TASK, [said("111")]) == 0.0
    assert game.score(TASK, [said("110", tool_calls=[{"id": "x"}])]) == 0.0
    assert game.score(TASK, [said("110"), {"role": "user", "content": game.ERROR}]) == 0.0
    assert game.score(TASK, []) == 0.0


def test_a_trace_is_scored_by_its_last_complete_answer_within_the_turns() -> None:
    assert game.score(TASK, trace((said("7"), "stop"), (said("110"), "stop"))) == 1.0
    assert game.score(TASK, trace((said("110"), "length"))) == 0.0
    assert game.score(TASK, trace(*[(said("110"), "stop")] * (game.MAX_TURNS + 1))) == 0.0
    assert game.score(TASK, trace()) == 0.0
    with pytest.raises(ValueError, match="other"):
        game.score(TASK, trace(task_id="other"))


class Player:
    """A scripted model that plays by the book: it adds what the prompt shows, two numbers at a time."""

    def __init__(self) -> None:
        self.turn: dict[str, int] = {}

    def __call__(self, request: GenerateRequest) -> str:
        turn = self.turn.get(request.affinity, 0)
        self.turn[request.affinity] = turn + 1
        return ("<tool_call>37+48</tool_call>", "<tool_call>85+25</tool_call>", "110")[turn]


@pytest.mark.parametrize("agent", [game.run_agent, game.run_agent_openai])
async def test_both_agents_play_the_same_game(agent: Any, tmp_path: Path) -> None:
    if agent is game.run_agent_openai:
        pytest.importorskip("openai")
    with live_server(tmp_path, ToyFleet(Player())) as server:
        async with AsyncSwarmClient(server.url, server.tokens.admin) as client:
            await client.configure({"engine": "toy"})
            await client.start()
            report = await run_eval_async([TASK], agent, client=client, scorer=game.score)
            record = report.records[0]
            seen = await client.trace(record.episode_id)
    assert (report.mean, record.calls) == (1.0, 3)
    assert seen.metrics == {"turns": 3.0, "tool_calls": 2.0, "errors": 0.0}
    assert [m["content"] for m in seen.calls[2].messages if m["role"] == "tool"] == ["85", "110"]


def test_a_million_problems_cost_nothing_until_they_are_asked_for() -> None:
    began = time.perf_counter()
    assert len(game.CalculatorTasks()) == 1_000_000
    assert time.perf_counter() - began < 1.0
