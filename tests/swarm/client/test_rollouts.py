"""run_episodes and run_eval against a live server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swarm.client import (
    AsyncSwarmClient,
    ClientUsageError,
    Episode,
    SwarmClient,
    Task,
    TooManyFailures,
    WaitTimeout,
    run_episodes,
    run_episodes_async,
    run_eval,
    run_eval_async,
)
from swarm.client.agents import in_thread, is_async, read_score
from swarm.client.episode import AsyncEpisode
from swarm.protocol.errors import RewardError, ServerUnreachable, StateError
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import EngineState
from swarm.testing.live_server import LiveServer, live_server

TASKS = [Task(f"t{i}", {"n": i}) for i in range(40)]


async def ask(episode: AsyncEpisode, task: Task) -> float:
    await episode.chat([{"role": "user", "content": f"Compute {task.payload['n']}+1."}])
    return float(episode.grant.repeat_index)


@pytest.mark.every_engine
async def test_training_runs_to_its_end_with_exactly_the_episodes_it_needs(
    async_client: AsyncSwarmClient,
) -> None:
    run = await run_episodes_async(TASKS, ask, client=async_client)
    assert (run.finished, run.episodes, run.ended) == (12, 12, "training_complete")
    assert run.steps == [0, 1, 2]
    metrics = await async_client.metrics()
    assert [(m.groups, m.episodes, m.reward_mean) for m in metrics] == [(2, 4, 0.5)] * 3


async def test_the_same_seeds_choose_the_same_tasks_and_weights(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    seen: list[tuple[str | None, Counter[str]]] = []
    for attempt in range(2):
        tasks: Counter[str] = Counter()

        async def note(episode: AsyncEpisode, task: Task, tasks: Counter[str] = tasks) -> float:
            tasks[f"{episode.grant.group_id}/{task.task_id}"] += 1
            return await ask(episode, task)

        with live_server(tmp_path / str(attempt)) as server:
            async with AsyncSwarmClient(server.url, server.tokens.admin) as client:
                await client.configure(small)
                await client.start()
                await run_episodes_async(TASKS, note, client=client, data_seed=5)
                seen.append(((await client.status()).fingerprint, tasks))
    assert seen[0] == seen[1]
    assert set(seen[0][1].values()) == {2}


@pytest.mark.every_engine
async def test_a_raising_task_is_counted_and_the_rest_go_on(
    async_client: AsyncSwarmClient, capsys: pytest.CaptureFixture[str]
) -> None:
    failures: list[str] = []
    broken: set[str] = set()

    async def sometimes(episode: AsyncEpisode, task: Task) -> float:
        if task.task_id not in broken:
            broken.add(task.task_id)
            raise LookupError(f"no data for {task.task_id}")
        return await ask(episode, task)

    run = await run_episodes_async(
        TASKS,
        sometimes,
        client=async_client,
        on_error=lambda task, _: failures.append(task.task_id),
    )
    assert run.finished == 12
    assert run.failed == len(failures) == len(broken)
    printed = capsys.readouterr().err
    assert printed.count("Traceback") == 1
    assert "no data for" in printed
    assert "no data for" in run.first_traceback


async def test_an_agent_that_never_succeeds_stops_the_run_with_its_traceback(
    async_client: AsyncSwarmClient,
) -> None:
    async def never(episode: AsyncEpisode, task: Task) -> float:
        raise LookupError("always")

    with pytest.raises(TooManyFailures, match="LookupError: always"):
        await run_episodes_async(TASKS, never, client=async_client, max_consecutive_failures=7)
    assert (await async_client.status()).state is EngineState.ROLLING
    assert (await async_client.pool()).episodes_open == 0


async def test_an_agent_without_a_reward_fails(async_client: AsyncSwarmClient) -> None:
    async def forgets(episode: AsyncEpisode, task: Task) -> None:
        return None

    with pytest.raises(TooManyFailures, match="returned None as its reward"):
        await run_episodes_async(TASKS, forgets, client=async_client, max_consecutive_failures=3)


@pytest.mark.every_engine
async def test_an_agent_that_hangs_is_given_up(async_client: AsyncSwarmClient) -> None:
    async def hangs(episode: AsyncEpisode, task: Task) -> float:
        await asyncio.Event().wait()
        return 1.0

    with pytest.raises(TooManyFailures, match="TimeoutError"):
        await run_episodes_async(
            TASKS, hangs, client=async_client, episode_timeout_s=0.05, max_consecutive_failures=3
        )


@pytest.mark.every_engine
async def test_no_more_than_parallel_agents_run_at_once(async_client: AsyncSwarmClient) -> None:
    running, most = 0, 0

    async def counted(episode: AsyncEpisode, task: Task) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        reward = await ask(episode, task)
        await asyncio.sleep(0.01)
        running -= 1
        return reward

    run = await run_episodes_async(TASKS, counted, client=async_client, parallel=3)
    assert run.finished == 12
    assert 1 < most <= 3


@pytest.mark.every_engine
async def test_until_step_stops_early_and_on_step_sees_each_step(
    async_client: AsyncSwarmClient,
) -> None:
    seen: list[int] = []
    run = await run_episodes_async(
        TASKS, ask, client=async_client, until_step=2, on_step=seen.append
    )
    assert (run.ended, run.steps, seen) == ("until_step", [0, 1], [0, 1, 2])


@pytest.mark.every_engine
async def test_an_agent_may_finish_or_abort_by_itself(async_client: AsyncSwarmClient) -> None:
    aborted: set[str] = set()

    async def own(episode: AsyncEpisode, task: Task) -> None:
        if task.task_id not in aborted:
            aborted.add(task.task_id)
            await episode.abort("not this one")
        else:
            await episode.finish(float(episode.grant.repeat_index))

    run = await run_episodes_async(TASKS, own, client=async_client)
    assert (run.finished, run.aborted, run.failed) == (12, len(aborted), 0)


@pytest.mark.every_engine
def test_a_plain_function_plays_in_threads(client: SwarmClient) -> None:
    threads: set[str] = set()

    def plain(episode: Episode, task: Task) -> tuple[float, dict[str, float]]:
        threads.add(threading.current_thread().name)
        answer = episode.chat([{"role": "user", "content": "Compute 1+1."}])
        return float(episode.grant.repeat_index), {"length": len(answer.text)}

    run = run_episodes(TASKS, plain, client=client, parallel=4)
    assert (run.finished, run.ended) == (12, "training_complete")
    assert threads == {"swarm-agent"}


@pytest.mark.every_engine
async def test_an_offline_server_is_an_error_that_says_what_to_do(server: LiveServer) -> None:
    async with AsyncSwarmClient(server.url, server.tokens.client) as client:
        with pytest.raises(StateError, match="OFFLINE") as caught:
            await run_episodes_async(TASKS, ask, client=client)
    assert "Start it" in caught.value.hint


async def test_a_server_that_is_gone_ends_the_run_at_its_deadline(closed_url: str) -> None:
    async with AsyncSwarmClient(closed_url, "t", timeout_s=0.2) as client:
        with pytest.raises(ServerUnreachable):
            await run_episodes_async(TASKS, ask, client=client, unreachable_timeout_s=0.3)


async def test_a_step_that_never_completes_ends_at_the_stall_deadline(
    async_client: AsyncSwarmClient,
) -> None:
    # Another client holds a member of each group and never ends it.
    take = async_client.episode
    async with take("a"), take("a"), take("b"), take("b"):
        with pytest.raises(WaitTimeout, match="waiting for"):
            await run_episodes_async(TASKS, ask, client=async_client, stall_timeout_s=0.1)


async def test_a_run_survives_a_restart_of_the_server(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    state = tmp_path / "state"
    with live_server(state) as first:
        port = int(first.url.rpartition(":")[2])
        async with AsyncSwarmClient(first.url, first.tokens.admin) as client:
            await client.configure(small)
            await client.start()
            half = await run_episodes_async(TASKS, ask, client=client, until_step=1)
    restarted = threading.Event()

    def later() -> None:
        with live_server(state, resume=True, port=port):
            restarted.wait(30)

    starter = threading.Timer(0.7, later)
    starter.start()
    try:
        async with AsyncSwarmClient(first.url, first.tokens.admin, timeout_s=0.3) as client:
            rest = await run_episodes_async(TASKS, ask, client=client, unreachable_timeout_s=20)
    finally:
        restarted.set()
        await asyncio.to_thread(starter.join)
    assert (half.finished, rest.finished, rest.steps) == (4, 8, [1, 2])


def length(task: Task, trace: EpisodeTrace) -> float:
    return float(len(trace.calls[0].sampled_ids))


@pytest.mark.every_engine
async def test_an_eval_scores_every_item_from_the_trace(async_client: AsyncSwarmClient) -> None:
    report = await run_eval_async(
        TASKS[:5], ask, client=async_client, scorer=length, repeat=2, parallel=3
    )
    assert (report.planned, report.completed, report.missing) == (10, 10, 0)
    assert [r.task_id for r in report.records] == [f"t{i}" for i in range(5) for _ in range(2)]
    assert report.policy_versions == [0]
    assert report.mean == sum(report.scores) / 10
    assert min(report.scores) >= 1
    assert (await async_client.pool()).episodes_finished == 0


@pytest.mark.every_engine
async def test_a_failed_eval_item_is_missing_and_not_zero(async_client: AsyncSwarmClient) -> None:
    async def picky(episode: AsyncEpisode, task: Task) -> float:
        if task.task_id == "t1":
            raise LookupError("lost it")
        await ask(episode, task)
        return 1.0

    report = await run_eval_async(TASKS[:3], picky, client=async_client)
    assert (report.mean, report.missing) == (1.0, 1)
    assert "lost it" in report.records[1].why_missing
    assert report.records[1].score is None


@pytest.mark.every_engine
async def test_an_eval_of_a_step_that_has_passed_is_missing_at_once(
    async_client: AsyncSwarmClient,
) -> None:
    await run_episodes_async(TASKS, ask, client=async_client, until_step=1)
    report = await run_eval_async(TASKS[:2], ask, client=async_client, step=0)
    assert (report.missing, report.mean) == (2, None)
    assert "passed" in report.records[0].why_missing


@pytest.mark.every_engine
def test_a_synchronous_eval_needs_no_loop(client: SwarmClient) -> None:
    report = run_eval(TASKS[:2], ask, client=client, scorer=length)
    assert report.completed == 2


def test_what_can_never_work_is_refused_before_anything_is_asked() -> None:
    client = SwarmClient("http://127.0.0.1:1", "t")
    with pytest.raises(ClientUsageError):
        run_episodes([], ask, client=client)
    with pytest.raises(ClientUsageError):
        run_episodes(TASKS, ask, client=client, parallel=0)
    with pytest.raises(ClientUsageError):
        run_eval(TASKS, ask, client=client, repeat=0)


@pytest.mark.parametrize(
    "bad", [None, "1", float("nan"), (1.0, 2.0), (1.0, {"a": float("inf")}), [1.0]]
)
def test_only_finite_numbers_are_rewards(bad: object) -> None:
    with pytest.raises(RewardError):
        read_score(bad)


def test_rewards_with_and_without_metrics_are_read() -> None:
    assert read_score(True) == (1.0, {})
    assert read_score((0.5, {"turns": 2})) == (0.5, {"turns": 2.0})


async def test_a_thread_hands_its_result_and_its_error_to_the_loop() -> None:
    assert await in_thread(lambda: 3) == 3
    with pytest.raises(LookupError):
        await in_thread(lambda: {}[1])


def test_agents_are_told_apart_by_colour() -> None:
    class Callable:
        async def __call__(self, episode: object, task: object) -> float:
            return 1.0

    assert is_async(ask)
    assert is_async(Callable())
    assert not is_async(lambda episode, task: 1.0)
