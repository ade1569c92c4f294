"""A journal that cannot be written (disk full, read-only) takes the server OFFLINE and says why; nothing hangs."""

import pytest

from swarm.protocol.errors import EpisodeGone, JournalFailed
from swarm.protocol.messages import FinishRequest
from swarm.protocol.states import EngineState, EpisodeKind
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
