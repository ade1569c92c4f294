"""An engine process that lives and says nothing is replaced; nobody who calls notices more than a wait."""

import asyncio
import os
import signal

import pytest

from swarm.protocol.states import EngineState
from swarm.server.engine.host import EngineHost
from swarm.testing import retry_until
from swarm.testing.server_fixture import ask, play_step, take, toy_service

S = EngineState
HANG_S = 5.0
"""Long enough for a child that starts on a busy machine; the tests wait it out once each."""


class HostFleet:
    """Real child processes with the toy engine inside."""

    def __init__(self):
        self.hosts = []

    def __call__(self, _name):
        self.hosts.append(EngineHost("swarm.testing.toy_child"))
        return self.hosts[-1]


@pytest.fixture
def fleet():
    made = HostFleet()
    yield made
    for host in made.hosts:
        if host.pid is not None:
            os.kill(host.pid, signal.SIGKILL)


async def test_a_call_into_a_stopped_engine_is_answered_by_the_next_one(
    tmp_path, make_config, fleet
):
    config = make_config(engine_hang_s=HANG_S, stop_at_step=3)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        before = service.status().fingerprint
        grant = await take(service, "a")
        os.kill(fleet.hosts[0].pid, signal.SIGSTOP)
        (reply,) = await asyncio.wait_for(ask(service, grant), 90)
        status = service.status()
        assert (status.engine_restarts, status.fingerprint) == (1, before)
        assert f"said nothing for {HANG_S:g} s" in status.failure
        assert reply.completion_tokens > 0


async def test_an_engine_that_stops_while_nobody_calls_is_replaced_too(
    tmp_path, make_config, fleet
):
    config = make_config(engine_hang_s=HANG_S)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        os.kill(fleet.hosts[0].pid, signal.SIGSTOP)
        await retry_until(lambda: service.status().engine_restarts == 1, timeout_s=90)
        await retry_until(lambda: service.status().state is S.ROLLING, timeout_s=90)
        await play_step(service, 2)
        await retry_until(lambda: service.status().step == 1)
