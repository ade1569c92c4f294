"""Asynchronous mode as a whole: real server process, real HTTP, real gradients on the tiny model."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from swarm.client import SwarmClient, run_episodes
from swarm.tasks import calculator
from swarm.testing.server_process import server_process, start_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def config(**changes):
    base = {
        "run_name": "test",
        "seed": 3,
        "sampling": {"max_response_tokens": 16},
        "optimizer": {"lr": 1e-3},
        "batch": {"tasks": 8, "repeat": 4, "oversample": 1.25},
        "asynchronous": {"enabled": True, "max_staleness": 1},
        "stop_at_step": 8,
        "checkpoint": {"every_steps": 3, "keep": 2},
    }
    return {**base, **changes}


def engine_pid(server_pid):
    """The engine child of a server process."""
    tasks = Path(f"/proc/{server_pid}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    (pid,) = [p for p in children if b"engine.child" in Path(f"/proc/{p}/cmdline").read_bytes()]
    return pid


def play(client, until_step=None):
    return run_episodes(
        calculator.CalculatorTasks(exclude=[]),
        calculator.run_agent,
        client=client,
        task_set="calculator",
        parallel=16,
        until_step=until_step,
    )


def test_rolling_overlaps_updates_within_the_bound_and_every_token_is_accounted_for(tmp_path):
    with (
        server_process(tmp_path / "state") as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        client.configure(config())
        client.start()
        run = play(client)
        metrics = client.metrics(0)
    assert run.finished >= 8 * 8 * 4
    assert [m.step for m in metrics] == list(range(1, 9))
    assert {m.groups for m in metrics} == {8}
    # Which episodes come first depends on the machine: now and then the rewards of all eight groups are equal.
    updated = [m for m in metrics if m.updated]
    assert [m.step for m in metrics if m.zero_advantage_share < 1] == [m.step for m in updated]
    assert len(updated) >= 6
    assert len({m.fingerprint for m in metrics}) == len(updated), "an update changes what is served"
    assert [m.policy_version for m in updated] == list(range(1, len(updated) + 1))
    assert max(m.staleness_max for m in updated) == 1, "nothing overlapped, or too old was trained"
    assert updated[0].staleness_mean == 0.0
    assert all(0.0 <= m.importance_clipped_share < 0.5 for m in updated)
    assert updated[0].logprob_gap_max < 1e-3
    assert all(m.tokens["trained"] > 0 for m in updated)


def test_a_killed_engine_and_a_killed_server_lead_on_and_the_journal_replays_to_the_same_weights(
    tmp_path,
):
    state = tmp_path / "stäte with space"
    first = start_server(state)
    with SwarmClient(first.url, first.token()) as client:
        client.configure(config(checkpoint={"every_steps": 100}, stop_at_step=6))
        client.start()
        play(client, until_step=2)
        os.kill(engine_pid(first.process.pid), signal.SIGKILL)
        play(client, until_step=4)
        restarts = client.status().engine_restarts
    first.kill()
    with (
        server_process(state, "--resume", "--start") as second,
        SwarmClient(second.url, second.token()) as client,
    ):
        play(client)
        metrics, trained = client.metrics(0), client.status()
    assert restarts == 1
    assert [m.step for m in metrics] == list(range(1, 7))
    shutil.rmtree(state / "checkpoints")  # so that every batch is replayed, from the model
    with (
        server_process(state, "--resume", "--start") as third,
        SwarmClient(third.url, third.token()) as client,
    ):
        client.wait_step(5, timeout_s=60)
        status = client.status()
    assert status.failure is None
    assert (status.fingerprint, status.step) == (trained.fingerprint, 6)
