import asyncio

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.errors import ConfigError, EngineFailed, StateError
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState, GrantOutcome
from swarm.server.service.lifecycle import LEGAL, Lifecycle
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play, play_step, take, toy_service

S = EngineState


@pytest.mark.parametrize("source", list(S))
def test_only_the_listed_transitions_are_possible(source):
    for target in S:
        seen = []
        lifecycle = Lifecycle(lambda *args, seen=seen: seen.append(args))
        lifecycle.state = source
        if target in LEGAL[source]:
            lifecycle.to(target, "why")
            assert (lifecycle.state, seen) == (target, [(source, target, "why")])
        else:
            with pytest.raises(StateError, match=f"{source.value} to {target.value}"):
                lifecycle.to(target)
            assert (lifecycle.state, seen) == (source, [])


async def test_two_starts_at_once_boot_one_engine(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, fleet=fleet) as service:
        await service.configure(make_config())
        first, second = await asyncio.gather(service.start(), service.start())
        assert first.state is second.state is S.ROLLING
        assert (await service.start()).state is S.ROLLING
        assert len(fleet.engines) == 1


async def test_a_failing_boot_leaves_the_server_offline_with_the_reason(tmp_path, make_config):
    fleet = ToyFleet()
    fleet.prepare = lambda engine: setattr(engine, "refuse_boot", "no memory")
    async with toy_service(tmp_path, fleet=fleet) as service:
        await service.configure(make_config())
        with pytest.raises(EngineFailed, match="no memory"):
            await service.start()
        status = service.status()
        assert (status.state, "no memory" in status.failure) == (S.OFFLINE, True)
        assert fleet.latest.closed
        fleet.prepare = lambda engine: None
        started = await service.start()
        assert (started.state, started.failure) == (S.ROLLING, None)


async def test_start_without_a_configuration_is_refused(tmp_path):
    async with toy_service(tmp_path) as service:
        with pytest.raises(StateError, match="no configuration"):
            await service.start()
        assert service.status().waiting_for == "a configuration"


@pytest.mark.every_engine
async def test_a_model_that_does_not_exist_is_refused_when_configuring(tmp_path, make_config):
    async with toy_service(tmp_path) as service:
        with pytest.raises(ConfigError):
            await service.configure(make_config(model={"path": "builtin:tiny-clac"}))
        with pytest.raises(ConfigError, match="parser"):
            await service.configure(make_config(model={"tool_parser": "hermesse"}))


@pytest.mark.every_engine(anew=True)
async def test_stop_aborts_open_episodes_and_start_goes_on_where_it_was(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=2)) as service:
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is S.ROLLING)
        kept = await play(service, "a")
        assert kept.accepted
        opened = await take(service, "a")
        fingerprint = service.status().fingerprint
        stopped = await service.stop()
        assert (stopped.state, stopped.step, stopped.open_episodes) == (S.OFFLINE, 1, 0)
        assert service.trace(opened.episode_id, calls=False).state is EpisodeState.ABORTED
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        assert (await service.stop()).state is S.OFFLINE
        started = await service.start()
        assert (started.state, started.fingerprint) == (S.ROLLING, fingerprint)
        assert service.pool().episodes_finished == 1
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is S.TRAINED)


@pytest.mark.every_engine
async def test_requests_before_the_start_are_held_and_then_served(tmp_path, make_config):
    async with toy_service(tmp_path) as service:
        service.register(ClientRegistration(client_id="client"))
        held = asyncio.create_task(take(service, "a", wait_s=30))
        await settle()
        await service.configure(make_config())
        await service.start()
        assert (await asyncio.wait_for(held, 60)).outcome is GrantOutcome.GRANTED


@pytest.mark.every_engine
async def test_state_changes_are_events_in_order(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        grant = await take(service, "x", kind=EpisodeKind.EVAL)
        await ask(service, grant)
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is S.TRAINED)
        states, last = [], 0
        async for event in service.events(0):
            assert event.seq > last
            last = event.seq
            if event.kind == "state":
                states.append(event.data["new"])
                if event.data["new"] == "TRAINED":
                    break
        assert states == [
            "BOOTING",
            "ROLLING",
            "ROLLING_POST",
            "WEIGHT_SYNCING",
            "WEIGHT_EXPORTING",
            "TRAINED",
        ]


@pytest.mark.every_engine
async def test_checkpoints_are_saved_on_time_and_old_ones_deleted(tmp_path, make_config):
    config = make_config(stop_at_step=4, every_steps=1, keep=2)
    async with toy_service(tmp_path, config) as service:
        for _ in range(4):
            await play_step(service, 4, turns=1)
        await retry_until(lambda: service.status().state is S.TRAINED)
        saved = service.checkpoints()
        assert [c.step for c in saved] == [3, 4]
        assert saved[-1].fingerprint == service.status().fingerprint
        folders = {p.name for p in (tmp_path / "checkpoints").iterdir()}
        assert folders == {c.path.rsplit("/", 1)[-1] for c in saved}
        again = await service.save_checkpoint()
        assert (again.step, again.fingerprint) == (4, saved[-1].fingerprint)
        await service.stop()
        with pytest.raises(StateError, match="OFFLINE"):
            await service.save_checkpoint()


async def test_a_stop_while_booting_ends_the_start(tmp_path, make_config):
    fleet = ToyFleet()
    fleet.prepare = lambda engine: setattr(engine, "boot_gate", asyncio.Event())
    async with toy_service(tmp_path, fleet=fleet) as service:
        await service.configure(make_config())
        starting = asyncio.create_task(service.start())
        await settle()
        assert service.status().state is S.BOOTING
        assert (await service.stop()).state is S.OFFLINE
        with pytest.raises(EngineFailed, match="stopped while it booted"):
            await starting
        assert fleet.latest.closed
        fleet.prepare = lambda engine: None
        assert (await service.start()).state is S.ROLLING


async def test_a_start_during_a_stop_waits_until_the_old_engine_is_gone(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        old, gate = fleet.latest, asyncio.Event()
        closing = old.close

        async def close_slowly():
            await gate.wait()
            await closing()

        old.close = close_slowly
        stopping = asyncio.create_task(service.stop())
        await retry_until(lambda: service.status().state is S.OFFLINE)
        starting, again = (asyncio.create_task(f()) for f in (service.start, service.stop))
        await settle()
        assert len(fleet.engines) == 1
        assert not again.done()
        gate.set()
        await asyncio.wait_for(asyncio.gather(stopping, again, starting, return_exceptions=True), 5)
        assert old.closed
        assert (await service.start()).state is S.ROLLING
        assert not fleet.latest.closed
