"""The swarm as a whole: real server process, real HTTP, real gradients on the tiny model."""

import os
import signal
from pathlib import Path

import pytest

from swarm.client import SwarmClient, run_episodes, run_eval
from swarm.tasks import calculator
from swarm.testing.server_process import server_process, start_server

pytestmark = pytest.mark.timeout(180)


def config(**changes):
    base = {
        "run_name": "test",
        "seed": 3,
        "sampling": {"max_response_tokens": 16},
        "optimizer": {"lr": 1e-3},
        "batch": {"tasks": 16, "repeat": 4},
        "stop_at_step": 14,
    }
    return {**base, **changes}


def test_held_out_reward_of_an_openai_sdk_agent_rises(tmp_path):
    items = calculator.held_out(100)
    with (
        server_process(tmp_path / "state") as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        client.configure(config())
        client.start()
        game = {"client": client, "parallel": 32}
        before = run_eval(items, calculator.run_agent_openai, scorer=calculator.score, **game)
        tasks = calculator.CalculatorTasks(exclude=items)
        run = run_episodes(tasks, calculator.run_agent_openai, task_set="calculator", **game)
        after = run_eval(items, calculator.run_agent_openai, scorer=calculator.score, **game)
        metrics = client.metrics(0)
    assert before.missing == after.missing == 0
    assert run.finished == 14 * 16 * 4
    assert after.mean > before.mean + 0.15
    assert [m.step for m in metrics] == list(range(1, 15))
    assert {m.groups for m in metrics} == {16}
    assert len({m.fingerprint for m in metrics}) == 14, "every update changed the served weights"
    assert max(m.logprob_gap_max for m in metrics) < 1e-3


def train_one_at_a_time(client, steps):
    tasks = calculator.CalculatorTasks(exclude=[])
    run_episodes(
        tasks,
        calculator.run_agent,
        client=client,
        task_set="calculator",
        parallel=1,
        until_step=steps,
    )


SMALL = config(
    batch={"tasks": 3, "repeat": 4}, stop_at_step=6, checkpoint={"every_steps": 2, "keep": 2}
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Fingerprints per step of a run that nothing happened to."""
    with (
        server_process(tmp_path_factory.mktemp("plain") / "state") as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        client.configure(SMALL)
        client.start()
        train_one_at_a_time(client, 6)
        return [m.fingerprint for m in client.metrics(0)]


def engine_pid(server_pid):
    """The engine child of a server process."""
    tasks = Path(f"/proc/{server_pid}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    (pid,) = [p for p in children if b"engine.child" in Path(f"/proc/{p}/cmdline").read_bytes()]
    return pid


def test_a_killed_engine_replays_to_the_same_weights(tmp_path, undisturbed):
    with (
        server_process(tmp_path / "state") as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        client.configure(SMALL)
        client.start()
        train_one_at_a_time(client, 3)
        os.kill(engine_pid(server.process.pid), signal.SIGKILL)
        train_one_at_a_time(client, 6)
        status, metrics = client.status(), client.metrics(0)
    assert status.engine_restarts == 1
    assert [m.fingerprint for m in metrics] == undisturbed


def test_a_killed_server_resumes_without_new_rollouts_to_the_same_weights(tmp_path, undisturbed):
    state = tmp_path / "stäte with space"
    first = start_server(state)
    with SwarmClient(first.url, first.token()) as client:
        client.configure(SMALL)
        client.start()
        train_one_at_a_time(client, 3)
    first.kill()
    with (
        server_process(state, "--resume", "--start") as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        resumed = client.status()
        train_one_at_a_time(client, 6)
        metrics = client.metrics(0)
    assert resumed.step == 3
    assert [m.fingerprint for m in metrics] == undisturbed
