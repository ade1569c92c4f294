"""The controller lease: one client steers, until it gives the lease back or falls silent."""

import pytest

from swarm.protocol.clients import ClientRegistration, ControllerRequest
from swarm.protocol.errors import StateError
from swarm.protocol.states import EngineState
from swarm.server.service.controller import Controller
from swarm.server.service.service import LEASE_S
from swarm.testing import ManualClock
from swarm.testing.server_fixture import toy_service


def ask(service, client_id, *, release=False):
    return service.controller(ControllerRequest(client_id=client_id, release=release))


async def test_only_the_holder_configures_starts_and_stops(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        assert ask(service, "ann").lease_s == LEASE_S
        assert service.status().controller == "ann"
        for attempt in (
            lambda: service.configure(make_config(tasks=1), who="bob"),
            lambda: service.start(who="bob"),
            lambda: service.stop(who=""),
        ):
            with pytest.raises(StateError, match="'ann' controls") as refused:
                await attempt()
            assert refused.value.details["controller"] == "ann"
        # Looking at a change takes nobody's wheel.
        assert len(await service.configure(make_config(tasks=1), who="bob", dry_run=True)) == 1
        await service.configure(make_config(tasks=1), who="ann")
        assert (await service.stop(who="ann")).state is EngineState.OFFLINE


async def test_another_client_takes_the_lease_when_it_was_given_back_or_ended(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        ask(service, "ann")
        with pytest.raises(StateError, match="'ann'"):
            ask(service, "bob")
        ask(service, "bob", release=True)  # not his: nothing happens
        assert service.status().controller == "ann"
        ask(service, "ann", release=True)
        assert service.status().controller == ""
        ask(service, "bob")
        await clock.advance(LEASE_S + 1)
        assert service.status().controller == ""
        assert ask(service, "ann").client_id == "ann"
        await service.stop(who="ann")


async def test_heartbeats_and_control_requests_of_the_holder_renew_the_lease(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        service.register(ClientRegistration(client_id="ann"))
        ask(service, "ann")
        for renew in (
            lambda: service.heartbeat("ann"),
            lambda: ask(service, "ann"),
        ):
            await clock.advance(LEASE_S - 1)
            renew()
        await clock.advance(LEASE_S - 1)
        await service.start(who="ann")
        await clock.advance(LEASE_S - 1)
        assert service.status().controller == "ann"


def test_a_lease_that_ended_is_not_revived_by_a_late_word():
    import asyncio

    clock = ManualClock()
    controller = Controller(clock, 10.0)
    controller.ask(ControllerRequest(client_id="ann"))
    asyncio.run(clock.advance(10.0))
    controller.seen("ann")
    assert controller.holder == ""
    controller.require("bob", "anything")
