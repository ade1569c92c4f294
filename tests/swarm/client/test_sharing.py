"""Several clients on one task set: the server's queue hands out tasks, and the throttle keeps a fast one at its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, ClientUsageError, Task, run_episodes_async
from swarm.client.episode import AsyncEpisode
from swarm.protocol.pool import TaskQueue
from swarm.testing.live_server import LiveServer

TASKS = [Task(f"t{i}", {"n": i}) for i in range(6)]


def another(server: LiveServer, name: str) -> AsyncSwarmClient:
    return AsyncSwarmClient(server.url, server.tokens.client, client_id=name)


class Noting:
    """An agent that remembers its seats, ``pause_s`` slow."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.seats: list[tuple[str, str, int]] = []
        self._pause_s = pause_s

    async def __call__(self, episode: AsyncEpisode, task: Task) -> float:
        assert episode.task_id == task.task_id
        self.seats.append((episode.grant.group_id, task.task_id, task.payload["n"]))
        await episode.chat([{"role": "user", "content": f"Compute {task.payload['n']}+1."}])
        await asyncio.sleep(self._pause_s)
        return float(episode.grant.repeat_index)


async def test_two_clients_work_through_one_list_without_playing_a_group_twice(
    async_client: AsyncSwarmClient, server: LiveServer
) -> None:
    first, second = Noting(), Noting()
    async with another(server, "a") as a, another(server, "b") as b:
        runs = await asyncio.gather(
            run_episodes_async(TASKS, first, client=a, shared=True, parallel=1),
            run_episodes_async(TASKS, second, client=b, shared=True, parallel=1),
        )
    assert sum(run.finished for run in runs) == 12
    assert all(run.ended == "training_complete" for run in runs)
    seats = Counter(first.seats + second.seats)
    # Six groups of two, each task of the list in one of them, whoever played the members.
    assert set(seats.values()) == {2}
    assert {(task, n) for _, task, n in seats} == {(t.task_id, t.payload["n"]) for t in TASKS}


async def test_a_queue_that_was_handed_out_ends_the_run(
    async_client: AsyncSwarmClient, server: LiveServer
) -> None:
    player = Noting()
    async with another(server, "a") as client:
        run = await run_episodes_async(TASKS[:4], player, client=client, shared=True, epochs=1)
        assert (run.ended, run.finished, run.steps) == ("tasks_exhausted", 8, [0, 1])
        [queue] = await client.task_queues()
        assert (queue.exhausted, queue.handed_out) == (True, 4)


async def test_a_task_that_this_client_does_not_have_is_told(
    async_client: AsyncSwarmClient, server: LiveServer
) -> None:
    async def another_list(step: int) -> None:
        if step == 1:
            await async_client.set_task_queue("default", TaskQueue(task_ids=["x", "y"]))

    async with another(server, "a") as client:
        with pytest.raises(ClientUsageError, match="does not have"):
            await run_episodes_async(
                TASKS, Noting(), client=client, shared=True, on_step=another_list
            )
        assert (await client.pool()).episodes_open == 0


async def test_a_throttled_client_leaves_a_much_slower_one_its_share(
    server: LiveServer, small: dict[str, Any]
) -> None:
    batch = {"tasks": 8, "repeat": 1}
    async with AsyncSwarmClient(server.url, server.tokens.admin) as admin:
        await admin.configure(small | {"batch": batch, "stop_at_step": 4})
        await admin.start()
        tasks = [Task(f"t{i}", {"n": i}) for i in range(1000)]
        async with another(server, "fast") as fast, another(server, "slow") as slow:
            more: dict[str, Any] = {"shared": True, "throttle": 1.0, "parallel": 1}
            await asyncio.gather(
                run_episodes_async(tasks, Noting(), client=fast, **more),
                run_episodes_async(tasks, Noting(pause_s=0.3), client=slow, **more),
            )
        clients = {c.client_id: c.contributed for c in await admin.clients(gone=True)}
    assert clients["fast"] + clients["slow"] == 32
    # Half of each step; of the first one less, when it came late.
    assert clients["slow"] >= 10
