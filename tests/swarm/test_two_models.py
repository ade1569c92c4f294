"""Two servers with models of different make in one episode: real processes, real gradients, and a server that dies under it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from swarm.client import (
    AsyncGroupEpisode,
    SwarmClient,
    SwarmGroup,
    Task,
    run_episodes,
    run_eval,
)
from swarm.client.group_calls import prepare
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.states import EngineState
from swarm.tasks import calculator
from swarm.tasks.relay import run_relay
from swarm.testing.server_process import server_process, start_server

pytestmark = pytest.mark.timeout(400)
REWARD = FinishRequest(reward=1.0)
MODELS = {"llama": ("builtin:tiny-calc", 16), "qwen": ("builtin:tiny-calc-qwen", 24)}


def config(model: str, cap: int, **changes: Any) -> dict[str, Any]:
    base = {
        "model": {"path": model},
        "seed": 3,
        "sampling": {"max_response_tokens": cap},
        "optimizer": {"lr": 1e-3},
        "batch": {"tasks": 16, "repeat": 4},
        "stop_at_step": 10,
    }
    return {**base, **changes}


@pytest.mark.slow
def test_two_models_that_take_turns_learn_in_the_same_episodes(tmp_path: Path) -> None:
    items = calculator.held_out(100)
    with ExitStack() as stack:
        servers = {n: stack.enter_context(server_process(tmp_path / n)) for n in MODELS}
        clients = {n: SwarmClient(s.url, s.token()) for n, s in servers.items()}
        group = stack.enter_context(SwarmGroup(clients))
        algorithms = {"llama": "grpo", "qwen": "rloo"}
        group.configure({n: config(*MODELS[n], algorithm={"name": algorithms[n]}) for n in MODELS})
        group.start()
        game: dict[str, Any] = {"client": group, "parallel": 32}
        before = run_eval(items, run_relay, **game)
        tasks = calculator.CalculatorTasks(exclude=items)
        run = run_episodes(tasks, run_relay, task_set=calculator.TASK_SET, **game)
        after = run_eval(items, run_relay, **game)
        metrics = group.metrics()
    assert before.missing == after.missing == 0
    assert (run.finished, run.episodes) == (10 * 16 * 4, 10 * 16 * 4)
    assert before.mean is not None
    assert after.mean is not None
    assert after.mean > before.mean + 0.1
    for steps in metrics.values():
        assert len({m.fingerprint for m in steps}) == 10, "every update changed the served weights"
        gaps = [m.logprob_gap_max for m in steps if m.logprob_gap_max is not None]
        assert max(gaps) < 1e-3, "what was sampled is what was trained, whoever spoke in between"
        assert sum(m.divergences for m in steps) == 0
    assert metrics["llama"][-1].fingerprint != metrics["qwen"][-1].fingerprint


def test_a_server_killed_between_its_promise_and_its_commit_keeps_its_word(tmp_path: Path) -> None:
    small = {"engine": "toy", "stop_at_step": 1, "batch": {"tasks": 1, "repeat": 1}}
    with ExitStack() as stack:
        first = stack.enter_context(server_process(tmp_path / "first"))
        second = start_server(tmp_path / "second")
        stack.callback(lambda: second.process.poll() is None and second.kill())
        servers = {"a": first, "b": second}
        clients = {n: SwarmClient(s.url, s.token()) for n, s in servers.items()}
        group = stack.enter_context(SwarmGroup(clients))
        group.configure(dict.fromkeys(servers, small))
        group.start()
        with group.episode("t1") as episode:
            for role in episode.server_roles:
                episode.role(role).chat([{"role": "user", "content": "Compute 1+1."}])
            promises = {n: clients[n].send(prepare(i, REWARD)) for n, i in episode.ids.items()}
            second.kill()
            port = second.url.rsplit(":", 1)[1]
            stack.enter_context(
                server_process(tmp_path / "second", "--port", port, "--resume", "--start")
            )
            outcome = episode.finish(1.0)  # asks for the promise again and commits
        steps = {n: c.wait_step(0).step for n, c in clients.items()}
        consumed = {n: clients[n].trace(i).consumed_step for n, i in episode.ids.items()}
    assert {n: p.prepared for n, p in promises.items()} == {"a": True, "b": True}
    assert (outcome.accepted, outcome.split) == (True, {})
    assert steps == {"a": 1, "b": 1}
    assert set(consumed.values()) != {None}
    assert consumed["a"] == consumed["b"]


def test_a_server_that_is_killed_and_comes_back_has_trained_what_the_other_has(
    tmp_path: Path,
) -> None:
    """Between prepare and commit as well as anywhere else: an episode is consumed by both servers or by none."""
    played: list[dict[str, str]] = []
    split: list[dict[str, str]] = []
    half_way = threading.Event()
    small = {"engine": "toy", "stop_at_step": 6, "batch": {"tasks": 4, "repeat": 3}}

    async def agent(episode: AsyncGroupEpisode, task: Task) -> float:
        played.append(episode.ids)
        for role in episode.server_roles:
            await episode.role(role).chat([{"role": "user", "content": task.task_id}])
        outcome = await episode.finish(float(episode.grant.repeat_index))
        if outcome.split:
            split.append(outcome.split)
        if len(played) > 30:
            half_way.set()
        return 0.0

    with ExitStack() as stack:
        first = stack.enter_context(server_process(tmp_path / "first"))
        second = start_server(tmp_path / "second")
        stack.callback(lambda: second.process.poll() is None and second.kill())
        clients = {
            "a": SwarmClient(first.url, first.token()),
            "b": SwarmClient(second.url, second.token()),
        }
        group = stack.enter_context(SwarmGroup(clients))
        group.configure({"a": small, "b": small})
        group.start()
        tasks = [Task(f"t{i}", {}) for i in range(200)]
        results: list[Any] = []
        run = threading.Thread(
            target=lambda: results.append(run_episodes(tasks, agent, client=group, parallel=6))
        )
        run.start()
        assert half_way.wait(60)
        second.kill()
        port = second.url.rsplit(":", 1)[1]
        stack.enter_context(
            server_process(tmp_path / "second", "--port", port, "--resume", "--start")
        )
        run.join(120)
        assert results, "the run came to its end"
        statuses = group.status()
        consumed = [
            {name: clients[name].trace(i, calls_too=False).consumed_step for name, i in ids.items()}
            for ids in played
        ]
    assert {s.state for s in statuses.values()} == {EngineState.TRAINED}
    assert results[0].failed == 0
    uneven = [steps for steps in consumed if (steps["a"] is None) != (steps["b"] is None)]
    assert len(uneven) <= len(split)
    assert sum(steps["a"] is not None for steps in consumed) == 6 * 4 * 3
