"""Runs over streams: each task once, in order, and on from where the server's cursor stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.client import (
    AsyncSwarmClient,
    ClientUsageError,
    SwarmClient,
    Task,
    TaskStream,
    run_episodes,
    run_episodes_async,
)
from swarm.client.code_hash import code_hash_of
from swarm.client.episode import AsyncEpisode
from swarm.client.sources import OrderedSource
from swarm.protocol.clients import TaskCursor
from swarm.protocol.episodes import Grant
from swarm.protocol.errors import ClientReplaced
from swarm.protocol.pool import PoolSnapshot, WantedTask
from swarm.protocol.states import EngineState, EpisodeState, GrantOutcome, Role
from swarm.testing.live_server import LiveServer, live_server

TASKS = [Task(f"t{i}") for i in range(40)]


class Counted:
    """A source without end that remembers how far it was read."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self) -> Iterator[dict[str, Any]]:
        for i in count():
            self.read = i + 1
            yield {"id": f"line-{i}"}


class Player:
    """An agent that remembers what it played, in order of beginning."""

    def __init__(self, hang_at: int | None = None) -> None:
        self.played: list[str] = []
        self.hanging = asyncio.Event()
        self._hang_at = hang_at

    async def __call__(self, episode: AsyncEpisode, task: Task) -> float:
        self.played.append(task.task_id)
        if len(self.played) == self._hang_at:
            self.hanging.set()
            await asyncio.Event().wait()
        await episode.chat([{"role": "user", "content": "Compute 1+1."}])
        return float(episode.grant.repeat_index)


async def start(server: LiveServer, small: dict[str, Any], **more: Any) -> AsyncSwarmClient:
    client = AsyncSwarmClient(server.url, server.tokens.admin, client_id="reader", **more)
    await client.configure(small)
    await client.start()
    return client


def lines(first: int, last: int) -> list[str]:
    return [f"line-{i}" for i in range(first, last)]


async def test_a_stream_is_taken_in_order_and_read_no_further_than_needed(
    async_client: AsyncSwarmClient,
) -> None:
    source, player = Counted(), Player()
    run = await run_episodes_async(TaskStream(source), player, client=async_client)
    assert (run.finished, run.ended) == (12, "training_complete")
    # Two groups of two a step, three steps: six lines.
    assert Counter(player.played) == Counter(dict.fromkeys(lines(0, 6), 2))
    assert list(dict.fromkeys(player.played)) == lines(0, 6)
    assert source.read == 6


async def test_a_resumed_run_goes_on_after_the_last_task_taken(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small)
    first, second = Player(), Player()
    await run_episodes_async(TaskStream(Counted()), first, client=client, until_step=1)
    await client.close()
    async with AsyncSwarmClient(server.url, server.tokens.client, client_id="reader") as again:
        run = await run_episodes_async(TaskStream(Counted()), second, client=again, resume=True)
        assert run.finished == 8
        assert set(first.played) == set(lines(0, 2))
        assert set(second.played) == set(lines(2, 6))
        [info] = [c for c in await again.clients() if c.client_id == "reader"]
        assert info.cursor is not None
        assert (info.cursor.position, info.cursor.task_set) == (6, "default")


async def test_without_resume_a_stream_begins_anew(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small)
    await run_episodes_async(TaskStream(Counted()), Player(), client=client, until_step=1)
    again = Player()
    await run_episodes_async(TaskStream(Counted()), again, client=client, until_step=2)
    assert set(again.played) == set(lines(0, 2))
    lease = await client.heartbeat()
    assert lease.cursor is not None
    assert lease.cursor.position == 2
    await client.close()


async def test_members_that_died_with_their_client_are_played_again_by_the_next(
    server: LiveServer, small: dict[str, Any]
) -> None:
    """The second task's group is open when the client hangs for good; its line lies before the cursor."""
    client = await start(server, small)
    stuck, player = Player(hang_at=3), Player()
    old = asyncio.create_task(
        run_episodes_async(TaskStream(Counted()), stuck, client=client, parallel=1)
    )
    await stuck.hanging.wait()
    async with AsyncSwarmClient(server.url, server.tokens.client, client_id="reader") as again:
        await run_episodes_async(TaskStream(Counted()), player, client=again, resume=True)
        assert Counter(player.played) == Counter(dict.fromkeys(lines(1, 6), 2))
        assert [m.groups for m in await again.metrics()] == [2, 2, 2]
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    await client.close()


async def test_the_cursor_survives_a_restart_of_the_server(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    state = tmp_path / "state"
    with live_server(state) as server:
        client = await start(server, small)
        await run_episodes_async(TaskStream(Counted()), Player(), client=client, until_step=2)
        await client.close()
    player = Player()
    with live_server(state, resume=True) as server:
        async with AsyncSwarmClient(server.url, server.tokens.client, client_id="reader") as again:
            await run_episodes_async(TaskStream(Counted()), player, client=again, resume=True)
    assert set(player.played) == set(lines(4, 6))


async def test_another_data_seed_is_refused_when_resuming(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small)
    for tasks in (TASKS, TaskStream(Counted())):
        await run_episodes_async(tasks, Player(), client=client, data_seed=3, until_step=1)
        with pytest.raises(ClientUsageError, match="data_seed=3"):
            await run_episodes_async(tasks, Player(), client=client, data_seed=4, resume=True)
    run = await run_episodes_async(TASKS, Player(), client=client, data_seed=4)
    assert run.ended == "training_complete"
    await client.close()


async def test_a_stream_that_is_shorter_than_the_cursor_is_refused(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small)
    await run_episodes_async(TaskStream(Counted()), Player(), client=client, until_step=1)
    short = TaskStream([{"id": "line-0"}], epochs=1)
    with pytest.raises(ClientUsageError, match="the stream has only 1"):
        await run_episodes_async(short, Player(), client=client, resume=True)
    await client.close()


async def test_resuming_needs_an_id_of_ones_own(async_client: AsyncSwarmClient) -> None:
    with pytest.raises(ClientUsageError, match="id of its own"):
        await run_episodes_async(TASKS, Player(), client=async_client, resume=True)


async def test_a_run_ends_when_its_tasks_do(async_client: AsyncSwarmClient) -> None:
    stream = TaskStream(iter(TASKS[:3]))
    run = await run_episodes_async(stream, Player(), client=async_client)
    assert (run.ended, run.finished, run.steps) == ("tasks_exhausted", 6, [0, 1])


def test_a_source_that_fails_ends_the_run_with_its_own_error(client: SwarmClient) -> None:
    def broken() -> Iterator[Task]:
        yield TASKS[0]
        raise ConnectionResetError("the file server is gone")

    with pytest.raises(ConnectionResetError):
        run_episodes(TaskStream(broken), Player(), client=client)


GRANT = Grant(outcome=GrantOutcome.GRANTED, step=0)


def pool_of(step: int, have: list[str], wanted: list[str], groups_to_open: int = 2) -> PoolSnapshot:
    return PoolSnapshot(
        step=step,
        policy_version=None,
        state=EngineState.ROLLING,
        tasks_target=2,
        repeat=1,
        groups_complete=0,
        groups_open=0,
        groups_to_open=groups_to_open,
        episodes_finished=0,
        episodes_open=0,
        wanted=[WantedTask(task_set="default", task_id=name, missing=1) for name in wanted],
        task_ids=[f"default/{name}" for name in have],
    )


async def test_tasks_of_steps_that_are_over_are_forgotten() -> None:
    source = OrderedSource(TaskStream(Counted()), "default", 0)
    first = pool_of(0, [], [])
    await source.begin(None, first)
    for task in await source.plan(first, None):
        assert source.cursor(task, 0) is not None
        source.granted(task, GRANT)
    again = await source.plan(pool_of(0, lines(0, 2), ["line-1"]), None)
    assert [task.task_id for task in again] == ["line-1", "line-2", "line-3"]
    later = await source.plan(pool_of(1, [], ["line-1"]), None)
    assert [task.task_id for task in later] == ["line-2", "line-3"]


# --- restarts and versions ---------------------------------------------------------------------------------------


async def test_a_replaced_run_ends_instead_of_fighting_for_the_id(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small | {"stop_at_step": 1000})
    other = AsyncSwarmClient(server.url, server.tokens.client, client_id="reader")

    async def replaced(episode: AsyncEpisode, task: Task) -> float:
        await other.register(Role.TRAINER)
        return 1.0

    with pytest.raises(ClientReplaced):
        await run_episodes_async(TASKS, replaced, client=client)
    await other.close()
    await client.close()


async def test_two_connections_of_one_client_do_not_abort_each_other(
    server: LiveServer, small: dict[str, Any]
) -> None:
    with SwarmClient(server.url, server.tokens.admin, client_id="one") as client:
        client.configure(small | {"batch": {"tasks": 3, "repeat": 1}})
        client.start()
        with client.episode("by-hand") as episode:
            # A run of the same client, on a connection of its own, which registers too.
            async with AsyncSwarmClient.of(client.settings) as second:
                await run_episodes_async(TASKS, Player(), client=second, until_step=0)
            assert client.trace(episode.id).state is EpisodeState.OPEN
            episode.finish(1.0)


async def test_a_run_tells_the_hash_of_its_agents_code(
    server: LiveServer, small: dict[str, Any]
) -> None:
    client = await start(server, small)
    seen: list[str] = []

    async def agent(episode: AsyncEpisode, task: Task) -> float:
        seen.append(episode.id)
        return 1.0

    expected = code_hash_of(agent)
    assert len(expected) == 16
    await run_episodes_async(TASKS, agent, client=client, until_step=1)
    [info] = await client.clients()
    assert info.code_hash == expected
    assert (await client.trace(seen[0])).code_hash == expected
    await run_episodes_async(TASKS, agent, client=client, until_step=2, code_hash="v2")
    assert (await client.clients())[0].code_hash == "v2"
    assert (await client.trace(seen[-1])).code_hash == "v2"
    await client.close()


def test_what_can_never_work_is_refused() -> None:
    client = SwarmClient("http://127.0.0.1:1", "t")
    for bad in ({"throttle": 0.5}, {"epochs": 2}):
        with pytest.raises(ClientUsageError):
            run_episodes(TASKS, Player(), client=client, **bad)
    with pytest.raises(ClientUsageError, match="cannot be shared"):
        run_episodes(TaskStream(TASKS), Player(), client=client, shared=True)


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.booleans()), max_size=12))
def test_whatever_is_refused_and_whoever_restarts_each_task_is_taken_once_and_in_order(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each step: so many groups are wanted, so many of the asked episodes are granted, and then perhaps the client dies."""

    async def play() -> tuple[list[str], TaskCursor | None]:
        opened: list[str] = []
        cursor: TaskCursor | None = None
        source = OrderedSource(TaskStream(Counted()), "default", 0)
        await source.begin(None, pool_of(0, [], []))
        for step, (need, granted, dies) in enumerate(steps):
            pool = pool_of(step, [], [], groups_to_open=need)
            for task in (await source.plan(pool, None))[:granted]:
                told = source.cursor(task, step)
                if told is not None:
                    opened.append(task.task_id)
                    cursor = told
                source.granted(task, GRANT)
            if dies:
                source = OrderedSource(TaskStream(Counted()), "default", 0)
                await source.begin(cursor, pool_of(step, opened, []))
        return opened, cursor

    opened, cursor = asyncio.run(play())
    assert opened == lines(0, len(opened))
    assert (cursor.position if cursor else 0) == len(opened)
