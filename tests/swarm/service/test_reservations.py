"""A reservation holds a seat for a moment; unused it is nobody's loss."""

import asyncio

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import AbortRequest, FinishRequest, GrantRequest
from swarm.protocol.errors import EpisodeGone, NotFoundError
from swarm.protocol.pool import TaskQueue
from swarm.protocol.states import EpisodeState, GrantOutcome
from swarm.testing import ManualClock, settle
from swarm.testing.server_fixture import BASE_URL, ask, take, toy_service

pytestmark = pytest.mark.every_engine


async def reserve(service, task="a", reserve_s=5.0):
    request = GrantRequest(client_id="client", task_id=task, reserve_s=reserve_s)
    grant = await service.grant(request, base_url=BASE_URL)
    assert grant.outcome is GrantOutcome.GRANTED
    return grant


def state(service, grant):
    return service.trace(grant.episode_id, calls=False).state


async def test_a_reservation_that_nobody_confirms_ends_and_frees_its_seat(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=1), clock=clock) as service:
        grant = await reserve(service)
        waiting = asyncio.create_task(take(service, "b", wait_s=30, client_id="other"))
        await clock.advance(4.0)
        assert state(service, grant) is EpisodeState.OPEN
        await clock.advance(1.5)
        assert state(service, grant) is EpisodeState.EXPIRED
        with pytest.raises(EpisodeGone, match="reservation of 5 s"):
            service.confirm(grant.episode_id, base_url=BASE_URL)
        late = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        assert (await asyncio.wait_for(waiting, 60)).outcome is GrantOutcome.GRANTED


async def test_a_confirmed_one_is_an_episode_like_any_other(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(idle_deadline_s=10.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        grant = await reserve(service)
        await clock.advance(4.0)
        assert service.confirm(grant.episode_id, base_url=BASE_URL) == grant
        assert service.confirm(grant.episode_id, base_url=BASE_URL) == grant
        await clock.advance(8.0)
        assert state(service, grant) is EpisodeState.OPEN
        await clock.advance(2.5)  # idle since it was confirmed
        assert "idle deadline" in service.trace(grant.episode_id, calls=False).reason
        with pytest.raises(NotFoundError):
            service.confirm("ep-none", base_url=BASE_URL)


@pytest.mark.parametrize("use", ["call", "finish", "prepare"])
async def test_its_first_use_confirms_it(tmp_path, make_config, use):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        grant = await reserve(service)
        if use == "call":
            await ask(service, grant)
            await clock.advance(6.0)
            assert state(service, grant) is EpisodeState.OPEN
        elif use == "prepare":
            await service.prepare(grant.episode_id, FinishRequest(reward=1.0))
            await clock.advance(6.0)
            assert (await service.commit(grant.episode_id)).accepted
        else:
            answer = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
            assert answer.accepted


@pytest.mark.parametrize("rule", ["wait", "resample", "partial", "drop"])
@pytest.mark.parametrize("how", ["abort", "lapse", "lease"])
async def test_an_unused_one_leaves_its_group_as_it_was_under_every_rule(
    tmp_path, make_config, rule, how
):
    clock = ManualClock()
    config = make_config(group_rule=rule, tasks=1, repeat=3)
    async with toy_service(tmp_path, config, clock=clock) as service:
        lease = service.register(ClientRegistration(client_id="client"))
        done = await take(service, "a", client_id="other")
        await ask(service, done)
        await service.finish(done.episode_id, FinishRequest(reward=1.0))
        grant = await reserve(service, reserve_s=5.0 if how == "lapse" else 60.0)
        if how == "abort":
            await service.abort(grant.episode_id, AbortRequest(reason="the other server waits"))
        else:
            await clock.advance(6.0 if how == "lapse" else lease.lease_s + 1.0)
        await settle()
        assert state(service, grant) is not EpisodeState.OPEN
        pool = service.pool()
        assert (pool.groups_open, pool.episodes_finished, pool.episodes_open) == (1, 1, 0)
        assert [(w.task_id, w.missing) for w in pool.wanted] == [("a", 2)]
        assert service._core.ledger.episodes_dropped == {}
        assert [c.failed for c in service.clients(gone=True) if c.client_id == "client"] == [0]


async def test_a_reservation_that_was_used_is_lost_like_any_other(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(group_rule="resample", tasks=1)) as service:
        grant = await reserve(service)
        await ask(service, grant)
        await service.abort(grant.episode_id, AbortRequest())
        assert service._core.ledger.episodes_dropped == {"episode_aborted": 1}
        assert (await take(service, "a")).group_id == "s0.g1"


async def test_a_restarted_server_knows_whose_group_an_unused_one_made_room_for(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=2)
    async with toy_service(tmp_path, config) as service:
        unused = await reserve(service, "a")
        await service.abort(unused.episode_id, AbortRequest())
        grant = await take(service, "b")
        assert grant.group_id == unused.group_id
        await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
    async with toy_service(tmp_path, resume=True) as service:
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("b", 1)]


async def test_a_group_that_lost_a_member_stays_when_a_reservation_of_it_goes_unused(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2)) as service:
        lost = await take(service, "a")
        await service.abort(lost.episode_id, AbortRequest())
        unused = await reserve(service, "a")
        await service.abort(unused.episode_id, AbortRequest())
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("a", 2)]


async def test_the_task_of_a_shared_queue_that_was_only_reserved_is_not_lost_in_a_restart(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2)) as service:
        service.put_task_queue("default", TaskQueue(task_ids=["a", "b"]))
        unused = await reserve(service, "")
        await service.abort(unused.episode_id, AbortRequest())
    async with toy_service(tmp_path, resume=True) as service:
        again = await take(service, "")
        assert (again.group_id, again.task_id) == (unused.group_id, unused.task_id)


async def test_a_stop_frees_a_reservation_and_the_group_that_it_alone_opened(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        await reserve(service, "a")
        await service.stop()
        await service.start()
        assert service.pool().wanted == []
