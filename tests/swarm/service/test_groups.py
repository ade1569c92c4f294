import asyncio

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.states import EngineState, EpisodeState, GrantOutcome
from swarm.testing import retry_until
from swarm.testing.server_fixture import ask, play, take, toy_service

pytestmark = pytest.mark.every_engine


async def finish(service, grant, reward):
    await ask(service, grant)
    return await service.finish(grant.episode_id, FinishRequest(reward=reward))


async def test_wait_asks_for_the_lost_member_again_in_the_same_seat(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(group_rule="wait")) as service:
        first = await take(service, "a")
        second = await take(service, "a")
        await service.abort(first.episode_id, AbortRequest(reason="broke"))
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("a", 2)]
        again = await take(service, "a")
        assert (again.group_id, again.repeat_index) == (second.group_id, 0)


async def test_resample_drops_the_group_and_opens_another(tmp_path, make_config):
    config = make_config(group_rule="resample", tasks=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        done, open_one, lost = [await take(service, "a") for _ in range(3)]
        assert (await finish(service, done, 1.0)).accepted
        await service.abort(lost.episode_id, AbortRequest())
        answer = await service.finish(open_one.episode_id, FinishRequest(reward=1.0))
        assert (answer.accepted, answer.state) == (False, EpisodeState.ABORTED)
        assert "dropped" in answer.reason
        repeat = await service.finish(done.episode_id, FinishRequest(reward=1.0))
        assert repeat.accepted  # the first answer stands
        fresh = await take(service, "a")
        assert (fresh.group_id, fresh.repeat_index) == ("s0.g1", 0)
        await finish(service, fresh, 0.0)
        for reward in (1.0, 2.0):
            await finish(service, await take(service, "a"), reward)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.groups == 1
        assert metrics.episodes_dropped == {"episode_aborted": 1, "group_dropped": 2}


async def test_partial_trains_on_at_least_two_members_and_counts_the_missing(tmp_path, make_config):
    config = make_config(group_rule="partial", tasks=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grants = [await take(service, "a") for _ in range(3)]
        await finish(service, grants[0], 1.0)
        await service.abort(grants[1].episode_id, AbortRequest())
        assert service.pool().wanted == []
        await finish(service, grants[2], 0.0)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.episodes, metrics.updated) == (1, 2, True)
        assert metrics.episodes_dropped == {"episode_aborted": 1}


async def test_partial_still_knows_its_lost_seats_after_a_restart(tmp_path, make_config):
    config = make_config(group_rule="partial", tasks=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grants = [await take(service, "a") for _ in range(3)]
        await finish(service, grants[0], 1.0)
        await service.abort(grants[1].episode_id, AbortRequest())
    async with toy_service(tmp_path, resume=True) as service:
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("a", 1)]
        await finish(service, await take(service, "a"), 0.0)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.episodes, metrics.members_missing) == (1, 2, 1)


async def test_a_restart_forgets_no_group_that_was_tried(tmp_path, make_config):
    config = make_config(group_rule="resample", tasks=1, repeat=2, max_groups_factor=3)
    async with toy_service(tmp_path, config) as service:
        for _ in range(2):
            grant = await take(service, "a")
            await service.abort(grant.episode_id, AbortRequest())
    async with toy_service(tmp_path, resume=True) as service:
        assert service.pool().groups_to_open == 1
        grant = await take(service, "a")
        assert grant.group_id == "s0.g2"
        await service.abort(grant.episode_id, AbortRequest())
        await retry_until(lambda: service.status().step == 1)


async def test_oversampling_holds_a_burst_back_and_serves_it_step_by_step(tmp_path, make_config):
    config = make_config(tasks=2, repeat=1, oversample=1.5, stop_at_step=100, drain_deadline_s=0.0)
    async with toy_service(tmp_path, config) as service:
        burst = {asyncio.create_task(take(service, f"t{i}", wait_s=60)) for i in range(30)}
        while burst:
            done, burst = await asyncio.wait(burst, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            assert done
            pool = service.pool()
            assert pool.groups_open + pool.groups_complete <= 3
            for task in done:
                grant = task.result()
                assert grant.outcome is GrantOutcome.GRANTED
                await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert service.status().step >= 9


async def test_partial_replaces_a_group_that_cannot_keep_two_members(tmp_path, make_config):
    config = make_config(group_rule="partial", tasks=1)
    async with toy_service(tmp_path, config) as service:
        grants = [await take(service, "a") for _ in range(3)]
        for grant in grants[:2]:
            await service.abort(grant.episode_id, AbortRequest())
        late = await service.finish(grants[2].episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        assert (await take(service, "b")).group_id == "s0.g1"


async def test_drop_shrinks_the_step_by_the_lost_group(tmp_path, make_config):
    config = make_config(group_rule="drop", stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        lost, other = await take(service, "a"), await take(service, "b")
        await service.abort(lost.episode_id, AbortRequest())
        assert (await take(service, "c")).outcome is GrantOutcome.WAIT
        await finish(service, other, 1.0)
        for reward in (0.0, 2.0):
            await finish(service, await take(service, "b"), reward)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].groups == 1


async def test_a_step_that_lost_every_group_under_drop_advances_with_nothing(tmp_path, make_config):
    config = make_config(group_rule="drop", tasks=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        lost = await take(service, "a")
        await service.abort(lost.episode_id, AbortRequest())
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.updated, metrics.reward_mean) == (0, False, None)


@pytest.mark.parametrize(("policy", "groups"), [("C2", 2), ("C3", 2)])
async def test_no_more_groups_are_opened_than_the_step_can_use(
    tmp_path, make_config, policy, groups
):
    async with toy_service(tmp_path, make_config(policy=policy)) as service:
        granted = [await take(service, f"t{i}") for i in range(5)]
        outcomes = [grant.outcome for grant in granted]
        assert outcomes.count(GrantOutcome.GRANTED) == groups
        assert "opened all the groups" in granted[-1].reason
        pool = service.pool()
        assert (pool.groups_open, pool.groups_to_open, pool.episodes_open) == (2, 0, 2)
        assert pool.task_ids == ["default/t0", "default/t1"]


async def test_a_group_of_one_has_no_advantage(tmp_path, make_config):
    config = make_config(tasks=1, repeat=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        await play(service, "a")
        await retry_until(lambda: service.status().step == 1)
        assert not service.metrics(0)[0].updated


@pytest.mark.parametrize("rule", ["resample", "partial"])
async def test_groups_that_are_lost_again_and_again_are_not_replaced_for_ever(
    tmp_path, make_config, rule
):
    config = make_config(group_rule=rule, tasks=1, repeat=2, stop_at_step=1, max_groups_factor=3)
    async with toy_service(tmp_path, config) as service:
        for _ in range(3):
            grant = await take(service, "a")
            assert grant.outcome is GrantOutcome.GRANTED
            await service.abort(grant.episode_id, AbortRequest())
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.updated) == (0, False)
        assert metrics.episodes_dropped == {"episode_aborted": 3}
