"""A journal that cannot be written (disk full, read-only) takes the server OFFLINE and says why; nothing hangs."""

import contextlib

import pytest

from swarm.protocol.clients import ControllerRequest
from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import EpisodeGone, JournalFailed
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import ask, take, toy_service

S = EngineState


def read_only(service, on):
    """What SQLite answers on a file that it may only read."""
    service._core.journal._db.execute(f"PRAGMA query_only = {on:d}")


async def test_a_batch_that_cannot_be_committed_takes_the_server_offline(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        watching = await take(service, "held-out", kind=EpisodeKind.EVAL)
        grants = [await take(service, "a") for _ in range(2)]
        for i, grant in enumerate(grants):
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=float(i)))
        read_only(service, on=True)
        await retry_until(lambda: service.status().state is S.OFFLINE)
        status = service.status()
        assert "read-only" in status.failure
        assert status.open_episodes == 0
        await retry_until(lambda: fleet.latest.closed)
        with pytest.raises(EpisodeGone):
            service.episode_for_key(watching.api_key)
        assert fleet.latest.batches == []
        read_only(service, on=False)
        assert (await service.start()).state is S.ROLLING
        await retry_until(lambda: service.status().step == 1)
        assert service.status().policy_version.n == 1


async def test_a_step_that_cannot_be_recorded_is_taken_again(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        recorded = service._core.journal.commit_step

        def refuse(_metrics):
            raise JournalFailed("the journal is full")

        service._core.journal.commit_step = refuse
        for i in range(2):
            grant = await take(service, "a")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=float(i)))
        await retry_until(lambda: service.status().state is S.OFFLINE)
        service._core.journal.commit_step = recorded
        await service.start()
        await retry_until(lambda: service.status().step == 1)
        status, metrics = service.status(), service.metrics(0)[0]
        assert (status.policy_version.n, metrics.policy_version) == (1, 1)
        assert status.fingerprint == metrics.fingerprint
        assert set(metrics.tokens) == {"trained"}
        assert metrics.calls == 2


async def test_a_closing_server_with_a_broken_journal_still_ends_its_engine(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        await take(service, "a")
        read_only(service, on=True)
    assert fleet.latest.closed


async def test_a_lost_episode_whose_event_cannot_be_recorded_still_frees_its_seat(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2)) as service:
        lost = await take(service, "a")
        journal = service._core.journal
        record = journal.event

        def refuse(_kind, _data):
            raise JournalFailed("the journal is full")

        journal.event = refuse
        await service.abort(lost.episode_id, AbortRequest())
        journal.event = record
        assert (service.pool().episodes_open, service.pool().wanted[0].missing) == (0, 2)
        assert (await take(service, "a")).repeat_index == lost.repeat_index


async def test_a_start_that_cannot_be_recorded_does_not_leave_the_server_half_booted(
    tmp_path, make_config
):
    async with toy_service(tmp_path, fleet=ToyFleet()) as service:
        await service.configure(make_config())
        read_only(service, on=True)
        with contextlib.suppress(JournalFailed):
            await service.start()
        read_only(service, on=False)
        assert (await service.start()).state is S.ROLLING
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_an_engine_that_dies_while_nothing_can_be_recorded_is_replaced(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        dead = fleet.latest
        read_only(service, on=True)
        dead.kill("it was killed")
        await retry_until(lambda: fleet.latest is not dead and service.status().state is S.ROLLING)
        read_only(service, on=False)
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_an_eval_grant_that_cannot_be_recorded_gives_its_number_back(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        read_only(service, on=True)
        with pytest.raises(JournalFailed):
            await take(service, "held-out", kind=EpisodeKind.EVAL)
        read_only(service, on=False)
        grant = await take(service, "held-out", kind=EpisodeKind.EVAL)
        assert grant.repeat_index == 0


async def test_a_controller_whose_lease_cannot_be_told_of_holds_it_all_the_same(tmp_path):
    async with toy_service(tmp_path) as service:
        read_only(service, on=True)
        assert service.controller(ControllerRequest(client_id="me")).lease_s > 0
        assert service.status().controller == "me"
        read_only(service, on=False)
