"""The shared task queue: one order for all clients, missing seats first, nothing lost, nothing handed out twice."""

import asyncio
from collections import Counter

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import JournalFailed, NotFoundError, RequestError, StateError
from swarm.protocol.pool import TaskQueue
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.testing import ManualClock, ToyFleet, retry_until
from swarm.testing.server_fixture import take, toy_service

NAMES = [f"t{i}" for i in range(8)]


def queue(names=NAMES, *, epochs=None, seed=0):
    return TaskQueue(task_ids=list(names), epochs=epochs, seed=seed)


async def next_one(service, client="one", **more):
    return await take(service, "", client_id=client, **more)


async def finish(service, grant, reward=None):
    reward = float(grant.repeat_index) if reward is None else reward
    return await service.finish(grant.episode_id, FinishRequest(reward=reward))


async def play_out(service, until, clients=3):
    """Let clients take from the queue until the step is ``until``; returns the task of each group."""
    tasks: dict[str, str] = {}

    async def work(name):
        while service.status().step < until:
            grant = await next_one(service, name)
            if grant.outcome is GrantOutcome.GRANTED:
                tasks[grant.group_id] = grant.task_id
                await finish(service, grant)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(f"c{i}") for i in range(clients)))
    return tasks


@pytest.mark.every_engine
async def test_clients_complete_each_other_s_groups_and_every_task_comes_once_an_epoch(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=4, repeat=3, stop_at_step=4)) as service:
        service.put_task_queue("default", queue(seed=3))
        tasks = await play_out(service, 4)
        order = [tasks[f"s{step}.g{i}"] for step in range(4) for i in range(4)]
        assert sorted(order[:8]) == sorted(order[8:]) == NAMES
        assert order[:8] != order[8:]
        assert all(len(record.clients) > 1 for record in service.metrics(0))
        assert all((r.groups, r.episodes) == (4, 12) for r in service.metrics(0))


@pytest.mark.every_engine
async def test_missing_seats_go_out_before_new_tasks_and_to_anybody(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2)) as service:
        service.put_task_queue("default", queue())
        first = await next_one(service, "one")
        second = await next_one(service, "two")
        third = await next_one(service, "two")
        assert (second.group_id, second.task_id) == (first.group_id, first.task_id)
        assert third.group_id != first.group_id
        await service.abort(first.episode_id, AbortRequest())
        again = await next_one(service, "two")
        assert (again.group_id, again.repeat_index) == (first.group_id, first.repeat_index)
        assert [q.handed_out for q in service.task_queues()] == [2]


@pytest.mark.every_engine
async def test_the_seat_of_a_client_whose_lease_ended_goes_to_another(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        service.put_task_queue("default", queue())
        for name in ("gone", "here"):
            service.register(ClientRegistration(client_id=name))
        lost = await next_one(service, "gone")
        await finish(service, await next_one(service, "here"))
        held = asyncio.create_task(next_one(service, "here", wait_s=60))
        await clock.advance(50)
        service.heartbeat("here")
        await clock.advance(11)
        taken = await asyncio.wait_for(held, 60)
        assert (taken.group_id, taken.repeat_index) == (lost.group_id, lost.repeat_index)


async def test_a_restarted_server_knows_what_was_handed_out_and_whose_seats_are_free(
    tmp_path, make_config
):
    config = make_config(tasks=2, repeat=2, stop_at_step=4)
    async with toy_service(tmp_path, config, fleet=ToyFleet()) as service:
        service.put_task_queue("default", queue())
        one = await next_one(service)
        await finish(service, one)
        await next_one(service)
        await next_one(service)  # a group whose only member does not survive
        before = service.task_queues()
    async with toy_service(tmp_path, fleet=ToyFleet(), resume=True) as service:
        assert service.task_queues() == before
        first = await next_one(service, "two")
        assert (first.group_id, first.task_id) == (one.group_id, one.task_id)
        await finish(service, first)
        tasks = await play_out(service, 4)
        done = Counter({**tasks, one.group_id: one.task_id}.values())
        assert set(done) == set(NAMES)
        assert max(done.values()) == 1


@pytest.mark.every_engine
async def test_a_finite_queue_is_handed_out_once_and_then_says_so(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=4, repeat=1)) as service:
        service.put_task_queue("default", queue("ab", epochs=1))
        assert {(await next_one(service)).task_id for _ in range(2)} == {"a", "b"}
        last = await next_one(service)
        assert (last.outcome, last.reason) == (
            "wait",
            "the shared queue of 'default' is exhausted",
        )
        assert service.pool().exhausted_queues == ["default"]
        assert service.put_task_queue("default", queue("ab", epochs=2)).handed_out == 2
        assert (await next_one(service)).outcome is GrantOutcome.GRANTED


async def test_the_same_list_changes_nothing_and_another_replaces_what_is_left(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=3, repeat=2)) as service:
        service.put_task_queue("default", queue())
        first = await next_one(service)
        held_out = service.task_queues()[0].handed_out
        assert service.put_task_queue("default", queue()).handed_out == held_out == 1
        fresh = service.put_task_queue("default", queue(["x", "y", "z"]))
        assert (fresh.size, fresh.handed_out) == (3, 0)
        seat = await next_one(service, "two")
        assert seat.group_id == first.group_id  # what was handed out goes on
        assert (await next_one(service, "two")).task_id in {"x", "y", "z"}


async def test_a_new_list_serves_a_request_that_waits(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=1)) as service:
        service.put_task_queue("default", queue(["a"], epochs=1))
        await next_one(service)
        held = asyncio.create_task(next_one(service, wait_s=30))
        await retry_until(lambda: "1 requests held" in service.status().waiting_for)
        service.put_task_queue("default", queue(["b"], epochs=1))
        assert (await asyncio.wait_for(held, 60)).task_id == "b"


@pytest.mark.parametrize("rule", ["resample", "drop", "partial"])
async def test_the_task_of_a_lost_group_comes_again_but_not_for_ever(tmp_path, make_config, rule):
    config = make_config(
        tasks=3, repeat=2, group_rule=rule, max_groups_factor=4, stop_at_step=9, drain_deadline_s=0
    )
    async with toy_service(tmp_path, config) as service:
        service.put_task_queue("default", queue(epochs=1))
        poisoned = (await next_one(service)).task_id
        tries, seen = 0, set()
        while not service.pool().exhausted_queues:
            grant = await next_one(service)
            if grant.outcome is not GrantOutcome.GRANTED:
                await asyncio.sleep(0)
            elif grant.task_id == poisoned:
                tries += grant.repeat_index == 0
                await service.abort(grant.episode_id, AbortRequest())
            else:
                seen.add(grant.task_id)
                await finish(service, grant)
        assert seen == set(NAMES) - {poisoned}
        assert tries <= 3


@pytest.mark.every_engine
async def test_leftover_groups_are_handed_out_again_in_the_next_step(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, oversample=2.0, stop_at_step=3, drain_deadline_s=0)
    async with toy_service(tmp_path, config) as service:
        service.put_task_queue("default", queue())
        grants = [await next_one(service) for _ in range(4)]
        for grant in grants[:2]:
            await finish(service, grant)
        await retry_until(lambda: service.status().step == 1)
        assert service.task_queues()[0].waiting_again == 1
        assert (await next_one(service)).task_id == grants[2].task_id


@pytest.mark.every_engine
async def test_each_task_set_of_a_mix_has_its_own_queue(tmp_path, make_config):
    config = make_config(tasks=4, repeat=1, mix={"a": 0.75, "b": 0.25})
    async with toy_service(tmp_path, config) as service:
        for name in "ab":
            service.put_task_queue(name, queue([f"{name}{i}" for i in range(5)]))
        for name, count in (("a", 3), ("b", 1)):
            grants = [await next_one(service, task_set=name) for _ in range(count)]
            assert all(grant.task_id.startswith(name) for grant in grants)
            assert (await next_one(service, task_set=name)).outcome is GrantOutcome.WAIT


async def test_what_can_never_be_taken_from_a_queue_is_refused(tmp_path, make_config):
    async with toy_service(tmp_path / "bare") as service:
        with pytest.raises(StateError):
            service.put_task_queue("default", queue())
    async with toy_service(tmp_path / "run", make_config()) as service:
        with pytest.raises(NotFoundError, match="no shared queue") as caught:
            await next_one(service)
        assert "task_sets/default" in caught.value.hint
        with pytest.raises(RequestError, match="occurs twice: 'a'"):
            service.put_task_queue("default", queue("aba"))
        with pytest.raises(RequestError, match="is empty"):
            service.put_task_queue("default", queue(["a", ""]))
        service.put_task_queue("default", queue())
        with pytest.raises(RequestError, match="needs a task_id"):
            await next_one(service, kind=EpisodeKind.EVAL)


async def test_a_new_run_begins_without_queues(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service.put_task_queue("default", queue())
        await service.stop()
        await service.configure(make_config(seed=1))
        assert service.task_queues() == []


async def test_a_grant_that_could_not_be_recorded_hands_nothing_out(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=1)) as service:
        service.put_task_queue("default", queue())
        first = await next_one(service, request_id="r1")
        lost = service._core.journal
        before = service.task_queues()
        lost._db.execute("PRAGMA query_only = 1")
        with pytest.raises(Exception, match=r"journal|read"):
            await next_one(service)
        lost._db.execute("PRAGMA query_only = 0")
        assert service.task_queues() == before
        assert service.pool().groups_open == 1
        assert (await next_one(service)).group_id != first.group_id


async def test_tasks_come_again_only_when_the_batch_that_left_them_over_is_committed(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=1, oversample=2.0, stop_at_step=2)
    async with toy_service(tmp_path, config) as service:
        service.put_task_queue("default", queue())
        used = await next_one(service)
        await next_one(service)  # left over when the step is taken
        commit = service._core.journal.commit_batch

        def refuse(*_args, **_kwargs):
            raise JournalFailed("the journal is full")

        service._core.journal.commit_batch = refuse
        await finish(service, used)
        await retry_until(lambda: service.status().state is EngineState.OFFLINE)
        assert [q.waiting_again for q in service.task_queues()] == [0]
        service._core.journal.commit_batch = commit
        await service.start()
        await retry_until(lambda: service.status().step == 1)
        assert [q.waiting_again for q in service.task_queues()] == [1]


async def test_groups_of_a_replaced_list_are_still_filled_by_anybody_after_a_restart(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=2)
    async with toy_service(tmp_path, config) as service:
        service.put_task_queue("default", queue())
        first = await next_one(service)
        await finish(service, first)
        service.put_task_queue("default", queue(["new"]))
    async with toy_service(tmp_path, resume=True) as service:
        again = await next_one(service)
        assert (again.group_id, again.task_id) == (first.group_id, first.task_id)
        named = await take(service, "new", client_id="two")
        assert named.outcome is GrantOutcome.WAIT
