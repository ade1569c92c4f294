import asyncio

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import AbortRequest, FinishRequest, GrantRequest
from swarm.protocol.errors import (
    AuthError,
    EpisodeGone,
    NotFoundError,
    RequestError,
    RewardError,
)
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState, GrantOutcome
from swarm.testing import ManualClock, ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play, play_step, take, toy_service


@pytest.mark.every_engine
@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e308, None])
async def test_a_reward_that_no_update_can_use_is_refused_and_the_episode_stays_open(
    tmp_path, make_config, reward
):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        with pytest.raises(RewardError) as refused:
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        assert refused.value.status == 422
        assert service.status().open_episodes == 1
        assert (await service.finish(grant.episode_id, FinishRequest(reward=1.0))).accepted


@pytest.mark.every_engine
async def test_a_metric_that_is_not_finite_is_refused(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        request = FinishRequest(reward=1.0, metrics={"good": 1.0, "bad": float("nan")})
        with pytest.raises(RewardError, match="bad"):
            await service.finish(grant.episode_id, request)


@pytest.mark.every_engine
async def test_finish_and_abort_can_be_repeated_and_the_first_one_stands(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        first = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert await service.finish(grant.episode_id, FinishRequest(reward=2.0)) == first
        assert await service.abort(grant.episode_id, AbortRequest()) == first
        assert service.trace(grant.episode_id, calls=False).reward == 1.0
        other = await take(service, "a")
        aborted = await service.abort(other.episode_id, AbortRequest(reason="no luck"))
        assert (aborted.state, aborted.accepted) == (EpisodeState.ABORTED, False)
        late = await service.finish(other.episode_id, FinishRequest(reward=1.0))
        assert (late.accepted, late.reason) == (False, "no luck")


@pytest.mark.every_engine
async def test_unknown_episodes_are_not_found(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        for action in (
            service.finish("ep-none", FinishRequest(reward=1.0)),
            service.abort("ep-none", AbortRequest()),
        ):
            with pytest.raises(NotFoundError):
                await action
        with pytest.raises(NotFoundError):
            service.trace("ep-none", calls=False)


@pytest.mark.every_engine
async def test_a_finish_after_the_step_says_which_version_it_missed(tmp_path, make_config):
    config = make_config(oversample=2.0, drain_deadline_s=0.0)
    async with toy_service(tmp_path, config) as service:
        late = await take(service, "late")
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 1)
        with pytest.raises(EpisodeGone, match="version 0"):
            await ask(service, late)
        answer = await service.finish(late.episode_id, FinishRequest(reward=1.0))
        assert (answer.accepted, answer.step) == (False, 1)
        assert "policy version 0" in answer.reason
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 2)
        again = await service.finish(late.episode_id, FinishRequest(reward=1.0))
        assert not again.accepted


@pytest.mark.every_engine
async def test_keys_open_only_their_own_open_episode(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        assert service.episode_for_key(grant.api_key).episode_id == grant.episode_id
        with pytest.raises(AuthError):
            service.episode_for_key(grant.api_key[:-1] + "?")
        await service.abort(grant.episode_id, AbortRequest())
        with pytest.raises(EpisodeGone):
            service.episode_for_key(grant.api_key)


@pytest.mark.every_engine
async def test_an_idle_episode_expires_and_its_seat_is_wanted_again(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(idle_deadline_s=10.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        grant = await take(service, "a")
        await clock.advance(9.0)
        await ask(service, grant)
        await clock.advance(9.0)
        assert service.status().open_episodes == 1
        await clock.advance(1.5)
        trace = service.trace(grant.episode_id, calls=False)
        assert (trace.state, "idle" in trace.reason) == (EpisodeState.EXPIRED, True)
        again = await take(service, "a")
        assert (again.group_id, again.repeat_index) == (grant.group_id, grant.repeat_index)


async def test_a_pending_call_is_not_idle_but_the_total_deadline_ends_it(tmp_path, make_config):
    clock, fleet = ManualClock(), ToyFleet()
    config = make_config(idle_deadline_s=10.0, total_deadline_s=30.0)
    async with toy_service(tmp_path, config, clock=clock, fleet=fleet) as service:
        fleet.latest.hold = asyncio.Event()
        grant = await take(service, "a")
        call = asyncio.create_task(ask(service, grant))
        await settle()
        await clock.advance(25.0)
        assert service.status().open_episodes == 1
        await clock.advance(6.0)
        with pytest.raises(EpisodeGone, match="total deadline"):
            await call
        assert fleet.latest.generating == 0


@pytest.mark.every_engine
async def test_an_episode_may_bring_its_own_idle_deadline(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        request = (await take(service, "a")).episode_id
        assert request

        slow = GrantRequest(client_id="debug", task_id="a", idle_deadline_s=1e6)
        grant = await service.grant(slow, base_url="http://test/v1")
        assert grant.base_url == "http://test/v1"
        await clock.advance(5_000.0)
        assert service.trace(grant.episode_id, calls=False).state is EpisodeState.OPEN
        assert service.trace(request, calls=False).state is EpisodeState.EXPIRED


@pytest.mark.every_engine
async def test_a_lost_lease_aborts_the_clients_episodes(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(idle_deadline_s=1e6), clock=clock) as service:
        lease = service.register(ClientRegistration(client_id="client"))
        grant, other = await take(service, "a"), await take(service, "b", client_id="other")
        await clock.advance(lease.lease_s - 1)
        service.heartbeat("client")
        await clock.advance(lease.lease_s - 1)
        assert service.status().open_episodes == 2
        await clock.advance(2.0)
        assert "lease" in service.trace(grant.episode_id, calls=False).reason
        assert service.trace(other.episode_id, calls=False).state is EpisodeState.OPEN
        with pytest.raises(NotFoundError):
            service.heartbeat("client")


@pytest.mark.every_engine
async def test_registering_again_aborts_the_open_episodes_of_that_client(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service.register(ClientRegistration(client_id="client"))
        grant, other = await take(service, "a"), await take(service, "b", client_id="other")
        service.register(ClientRegistration(client_id="client"))
        assert service.trace(grant.episode_id, calls=False).state is EpisodeState.ABORTED
        assert service.trace(other.episode_id, calls=False).state is EpisodeState.OPEN


@pytest.mark.every_engine
async def test_held_grants_are_served_in_order_when_a_seat_comes_free(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=1)) as service:
        holder = await take(service, "a")
        waiting = [
            asyncio.create_task(take(service, task, wait_s=30, client_id=task))
            for task in ("first", "second")
        ]
        await settle()
        assert not any(task.done() for task in waiting)
        await play_finish(service, holder)
        first = await asyncio.wait_for(waiting[0], 60)
        assert (first.outcome, first.step) == (GrantOutcome.GRANTED, 1)
        await settle()
        assert not waiting[1].done()
        waiting[1].cancel()


async def play_finish(service, grant):
    await ask(service, grant)
    await service.finish(grant.episode_id, FinishRequest(reward=1.0))


@pytest.mark.every_engine
async def test_a_held_grant_answers_wait_with_the_reason_after_its_time(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=1), clock=clock) as service:
        await take(service, "a")
        waiting = asyncio.create_task(take(service, "b", wait_s=20))
        await settle()
        await clock.advance(19.0)
        assert not waiting.done()
        await clock.advance(2.0)
        grant = await waiting
        assert (grant.outcome, grant.step) == (GrantOutcome.WAIT, 0)
        assert "opened all the groups" in grant.reason


@pytest.mark.every_engine
async def test_a_grant_pinned_to_another_step_is_not_given_this_one(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        early = await take(service, "a", step=1)
        assert (early.outcome, "has not begun" in early.reason) == (GrantOutcome.WAIT, True)
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        late = await asyncio.wait_for(take(service, "a", step=0, wait_s=60), 1)
        assert (late.outcome, "has passed" in late.reason) == (GrantOutcome.WAIT, True)
        assert (await take(service, "a", step=1)).outcome is GrantOutcome.GRANTED


@pytest.mark.every_engine
async def test_an_episode_makes_at_most_max_calls(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(max_calls=2)) as service:
        grant = await take(service, "a")
        await ask(service, grant, 2)
        with pytest.raises(RequestError, match="2 of its 2 calls"):
            await ask(service, grant)


@pytest.mark.every_engine
async def test_wait_step_returns_when_the_step_is_over(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=1)) as service:
        assert (await service.wait_step(0, 0.0)).step == 0
        waiting = asyncio.create_task(service.wait_step(0, 30))
        await settle()
        assert not waiting.done()
        assert (await play(service, "a")).accepted
        assert (await asyncio.wait_for(waiting, 60)).step == 1
        assert (await service.wait_step(0, 30)).step == 1


@pytest.mark.every_engine
async def test_eval_episodes_finish_without_a_reward_and_never_enter_the_pool(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "held-out", kind=EpisodeKind.EVAL)
        await ask(service, grant)
        answer = await service.finish(grant.episode_id, FinishRequest())
        assert answer.accepted
        pool = service.pool()
        assert (pool.episodes_finished, pool.groups_open, pool.task_ids) == (0, 0, [])


@pytest.mark.every_engine
async def test_a_grant_whose_answer_was_lost_is_given_again(tmp_path, make_config):
    def asking(request_id, client_id="client"):
        request = GrantRequest(client_id=client_id, task_id="a", request_id=request_id)
        return service.grant(request, base_url="http://test")

    async with toy_service(tmp_path, make_config(tasks=1, repeat=3)) as service:
        first = await asking("r1")
        again = await asking("r1")
        assert again == first
        assert service.episode_for_key(again.api_key).episode_id == first.episode_id
        assert (await asking("r2")).repeat_index == 1
        assert (await asking("r1", "other")).repeat_index == 2
        assert (await asking("")).outcome is GrantOutcome.WAIT
        assert service.status().open_episodes == 3
        await service.abort(first.episode_id, AbortRequest())
        fresh = await asking("r1")  # that episode is over: this one is new, in the free seat
        assert (fresh.repeat_index, fresh.episode_id != first.episode_id) == (0, True)
