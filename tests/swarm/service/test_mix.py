"""Task mixes through the service: exact shares over steps, schedules, and what a resumed server knows of them."""

import asyncio
from collections import Counter

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.states import EngineState, GrantOutcome
from swarm.server.service.quotas import sequence
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import ask, take, toy_service

THIRDS = {"math": 0.4, "code": 0.3, "terminal": 0.3}


async def finish(service, grant):
    return await service.finish(
        grant.episode_id, FinishRequest(reward=float(grant.repeat_index + 1))
    )


async def play_steps(service, until, sets=THIRDS, workers=6):
    """Let workers, each with a task set of its own, take what they are granted until the server is at ``until``."""
    names = [list(sets)[i % len(sets)] for i in range(workers)]
    counter = iter(range(10**6))

    async def work(task_set):
        while service.status().step < until:
            wanted = [w.task_id for w in service.pool().wanted if w.task_set == task_set]
            task = wanted[0] if wanted else f"t{next(counter)}"
            grant = await take(service, task, task_set=task_set)
            if grant.outcome is GrantOutcome.GRANTED:
                await finish(service, grant)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(name) for name in names))


@pytest.mark.parametrize("policy", ["C1", "C2", "C3"])
async def test_shares_are_exact_over_steps_whoever_is_fastest(tmp_path, make_config, policy):
    config = make_config(policy=policy, tasks=5, repeat=2, stop_at_step=4, mix=THIRDS)
    async with toy_service(tmp_path, config) as service:
        await play_steps(service, 4, workers=7)
        records = service.metrics(0)
    units = 10 if policy == "C1" else 5
    order = sequence(THIRDS, {}, 4 * units)
    for number, record in enumerate(records):
        assert record.task_sets == Counter(order[number * units : (number + 1) * units])
    total = sum((Counter(record.task_sets) for record in records), Counter())
    assert total == {name: round(share * 4 * units) for name, share in THIRDS.items()}
    assert all(owed == pytest.approx(0, abs=1e-6) for owed in records[-1].mix_owed.values())


async def test_a_set_takes_its_quota_and_no_more(tmp_path, make_config):
    config = make_config(tasks=4, repeat=1, mix={"a": 0.75, "b": 0.25}, oversample=1.0)
    async with toy_service(tmp_path, config) as service:
        assert service.pool().quota_left == {"a": 3, "b": 1}
        grants = [await take(service, f"t{i}", task_set="a") for i in range(4)]
        assert [g.outcome for g in grants] == ["granted"] * 3 + ["wait"]
        assert "of 'a'" in grants[-1].reason
        other = await take(service, "t", task_set="c")
        assert "not in the mix" in other.reason
        assert "'a', 'b'" in other.reason
        pool = service.pool()
        assert (pool.quota_left, pool.groups_to_open) == ({"a": 0, "b": 1}, 1)
        assert "(a 0 of 3, b 0 of 1)" in service.status().waiting_for


async def test_a_held_request_is_served_when_its_set_has_room_again(tmp_path, make_config):
    config = make_config(
        tasks=2, repeat=1, mix={"a": 0.5, "b": 0.5}, group_rule="resample", max_groups_factor=4
    )
    async with toy_service(tmp_path, config) as service:
        first = await take(service, "t0", task_set="a")
        held = asyncio.create_task(take(service, "t1", task_set="a", wait_s=30))
        await retry_until(lambda: "1 requests held" in service.status().waiting_for)
        await service.abort(first.episode_id, AbortRequest())
        assert (await held).outcome is GrantOutcome.GRANTED


async def test_a_schedule_changes_the_shares_at_its_step(tmp_path, make_config):
    mix = [{"shares": {"easy": 1.0}}, {"from_step": 1, "shares": {"easy": 0.5, "hard": 0.5}}]
    config = make_config(tasks=4, repeat=2, stop_at_step=3, mix=mix)
    async with toy_service(tmp_path, config) as service:
        await play_steps(service, 3, sets=("easy", "hard"))
        sets = [record.task_sets for record in service.metrics(0)]
    assert sets == [{"easy": 4}, {"easy": 2, "hard": 2}, {"easy": 2, "hard": 2}]


async def test_a_resumed_server_goes_on_with_what_is_owed_and_with_its_tries(tmp_path, make_config):
    config = make_config(tasks=3, repeat=2, stop_at_step=4, mix=THIRDS)
    async with toy_service(tmp_path, config, fleet=ToyFleet()) as service:
        await play_steps(service, 1)
        before = service.pool().quota_left
        grant = await take(service, "x", task_set="math")
        await finish(service, grant)
        left = service.pool().quota_left
    async with toy_service(tmp_path, fleet=ToyFleet(), resume=True) as service:
        assert service.pool().quota_left == left != before
        await play_steps(service, 4)
        records = service.metrics(0)
    total = sum((Counter(record.task_sets) for record in records), Counter())
    assert total == Counter(sequence(THIRDS, {}, 12))


async def test_what_the_rule_drop_lost_is_owed_to_its_set(tmp_path, make_config):
    config = make_config(
        tasks=4, repeat=2, stop_at_step=3, mix={"a": 0.5, "b": 0.5}, group_rule="drop"
    )
    async with toy_service(tmp_path, config) as service:
        lost = await take(service, "x", task_set="a")
        await service.abort(lost.episode_id, AbortRequest())
        await play_steps(service, 1, sets=("a", "b"))
        first = service.metrics(0)[0]
        assert first.task_sets == {"a": 1, "b": 2}
        assert first.mix_owed == {"a": 0.5, "b": -0.5}
        await play_steps(service, 2, sets=("a", "b"))
        both = sum((Counter(record.task_sets) for record in service.metrics(0)), Counter())
        assert both == {"a": 4, "b": 3}


async def test_a_set_whose_groups_never_train_does_not_hold_up_the_others(tmp_path, make_config):
    config = make_config(
        policy="C3",
        tasks=4,
        repeat=2,
        stop_at_step=2,
        max_groups_factor=2,
        mix={"dull": 0.5, "keen": 0.5},
    )
    async with toy_service(tmp_path, config) as service:
        names = iter(range(1000))
        while service.status().step < 2:
            for task_set in ("dull", "keen"):
                task = f"t{next(names)}"
                for seat in range(2):
                    grant = await take(service, task, task_set=task_set)
                    if grant.outcome is GrantOutcome.GRANTED:
                        await ask(service, grant)
                        reward = float(seat) if task_set == "keen" else 1.0
                        await service.finish(grant.episode_id, FinishRequest(reward=reward))
            await asyncio.sleep(0)
        first, second = service.metrics(0)
    assert first.task_sets == {"keen": 2}
    assert second.task_sets["keen"] >= 1  # dull is asked for one more, never for all
    assert second.updated


async def test_a_step_that_waits_for_a_set_that_nobody_plays_is_freed_by_another_mix(
    tmp_path, make_config
):
    async with toy_service(
        tmp_path, make_config(tasks=2, repeat=1, mix={"a": 0.5, "b": 0.5})
    ) as service:
        await finish(service, await take(service, "t", task_set="a"))
        await service.stop()
        await service.configure(make_config(tasks=2, repeat=1, mix={"a": 1.0}))
        await service.start()
        assert service.pool().quota_left == {"a": 1}
        await finish(service, await take(service, "u", task_set="a"))
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].task_sets == {"a": 2}


async def test_a_step_that_waits_for_one_set_says_so(tmp_path, make_config):
    config = make_config(tasks=2, repeat=1, mix={"a": 0.5, "b": 0.5})
    async with toy_service(tmp_path, config) as service:
        await finish(service, await take(service, "t", task_set="a"))
        assert service.status().state is EngineState.ROLLING
        assert "1 of 2 groups complete (a 1 of 1, b 0 of 1)" in service.status().waiting_for
