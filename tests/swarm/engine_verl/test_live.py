"""The engine for real: Ray, FSDP2 and vLLM on the CPU, through the server's HTTP. Needs `make setup-verl`; minutes.

One server for the first tests, in order; what follows a kill boots again.
"""

import os
import signal
from pathlib import Path

import pytest

from swarm.client import SwarmClient, run_episodes
from swarm.server.engine_verl.nonces import NONCE
from swarm.tasks import calculator
from swarm.testing.server_process import server_process, start_server
from swarm.testing.waiting import retry_until

pytestmark = [pytest.mark.verl, pytest.mark.timeout(2400)]

STEPS = 4
CONFIG = {
    "run_name": "verl",
    "seed": 3,
    "sampling": {"max_response_tokens": 16},
    "optimizer": {"lr": 1e-3},
    "batch": {"tasks": 4, "repeat": 6},
    "checkpoint": {"every_steps": 2, "keep": 2},
    "engine_hang_s": 1800.0,
    "episode": {"idle_deadline_s": 1800.0, "total_deadline_s": 3600.0},
    "stop_at_step": STEPS + 2,
    "engine": "verl",
}


def train(client, steps):
    """One episode at a time, so that the order of finishes does not depend on the machine."""
    run_episodes(
        calculator.CalculatorTasks(exclude=[]),
        calculator.run_agent,
        client=client,
        task_set="calculator",
        parallel=1,
        until_step=steps,
    )


def carriers(nonce):
    """Processes that carry the nonce: Ray's, the workers, vLLM's."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{NONCE}={nonce}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("verl") / "state"


@pytest.fixture(scope="module")
def trained(state, engine_of):
    """Metrics of the first steps, and the server's nonce; the server is killed when the engine had died and come back."""
    server = start_server(state, "--engine", "verl", deadline_s=300)
    try:
        with SwarmClient(server.url, server.token(), chat_timeout_s=1800) as client:
            client.configure(CONFIG)
            client.start()
            train(client, STEPS - 1)
            before = client.metrics(0)
            pid, nonce = engine_of(server.process.pid)
            os.kill(pid, signal.SIGKILL)
            train(client, STEPS)
            after, restarts = client.metrics(0), client.status().engine_restarts
    finally:
        server.kill()
    return {"before": before, "after": after, "restarts": restarts, "nonce": nonce}


def test_three_updates_move_what_is_served_and_sampler_and_trainer_agree(trained):
    metrics = trained["before"]
    assert [m.step for m in metrics] == [1, 2, 3]
    assert {(m.groups, m.updated) for m in metrics} == {(4, True)}
    assert len({m.fingerprint for m in metrics}) == 3
    assert max(m.logprob_gap_max for m in metrics) < 1e-3


def test_a_killed_trainer_is_replaced_and_replays_to_the_same_weights(trained):
    assert trained["restarts"] == 1
    told = [(m.step, m.fingerprint) for m in trained["after"]]
    assert told[:3] == [(m.step, m.fingerprint) for m in trained["before"]]
    assert told[3][0] == 4


async def test_nothing_of_a_killed_server_stays_behind(trained):
    await retry_until(lambda: not carriers(trained["nonce"]), timeout_s=120)


def test_resume_goes_on_from_the_last_checkpoint(trained, state):
    with (
        server_process(state, "--engine", "verl", "--resume") as server,
        SwarmClient(server.url, server.token(), chat_timeout_s=1800) as client,
    ):
        client.start()
        resumed = client.status()
        train(client, STEPS + 1)
        metrics = client.metrics(0)
    assert resumed.step == STEPS
    assert [m.fingerprint for m in metrics][:STEPS] == [m.fingerprint for m in trained["after"]]
    assert metrics[-1].step == STEPS + 1
