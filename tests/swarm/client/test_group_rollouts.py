"""run_episodes and run_eval over a group of live toy servers and an outside model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from swarm.client import (
    AsyncGroupEpisode,
    AsyncSwarmClient,
    AsyncSwarmGroup,
    ExternalModel,
    ExternalModelDown,
    GroupEpisode,
    Price,
    SwarmClient,
    SwarmGroup,
    Task,
    TaskStream,
    run_episodes,
    run_episodes_async,
    run_eval_async,
)
from swarm.protocol.states import EngineState
from swarm.testing.live_server import LiveServer, live_server
from swarm.testing.outside_model import outside_model

TASKS = [Task(f"t{i}", {"n": i}) for i in range(40)]


@pytest.fixture
def pair(tmp_path: Path) -> Generator[dict[str, LiveServer]]:
    with ExitStack() as stack:
        yield {n: stack.enter_context(live_server(tmp_path / n)) for n in ("small", "large")}


def clients(pair: dict[str, LiveServer]) -> dict[str, AsyncSwarmClient]:
    return {n: AsyncSwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}


async def both(episode: AsyncGroupEpisode, task: Task) -> float:
    """Let every role speak once; members of a group get different rewards."""
    for role in episode.ids:
        messages = [{"role": "user", "content": f"Compute {task.payload['n']}+1."}]
        await episode.role(role).chat(messages)
    return float(episode.grant.repeat_index)


async def test_training_on_two_servers_runs_to_its_end_with_exactly_what_they_need(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    async with AsyncSwarmGroup(clients(pair)) as group:
        await group.configure(dict.fromkeys(pair, small))
        await group.start()
        run = await run_episodes_async(TASKS, both, client=group)
        metrics = await group.metrics()
    assert (run.finished, run.episodes, run.ended) == (12, 12, "training_complete")
    for steps in metrics.values():
        assert [(m.groups, m.episodes, m.reward_mean) for m in steps] == [(2, 4, 0.5)] * 3
    # Same seed, same model, same records on both: episodes took the same seats in the same order.
    prints = {s: [m.fingerprint for m in steps] for s, steps in metrics.items()}
    assert prints["small"] == prints["large"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tasks": 3, "repeat": 2}, {"tasks": 2, "repeat": 2}),
        ({"tasks": 2, "repeat": 2}, {"tasks": 2, "repeat": 5}),
        ({"tasks": 2, "repeat": 4}, {"tasks": 3, "repeat": 3, "policy": "C3"}),
        (
            {"tasks": 3, "repeat": 2, "policy": "C1"},
            {"tasks": 2, "repeat": 2, "group_rule": "drop"},
        ),
        ({"tasks": 2, "repeat": 3, "group_rule": "partial"}, {"tasks": 1, "repeat": 2}),
        ({"tasks": 2, "repeat": 2, "policy": "C4"}, {"tasks": 2, "repeat": 2}),
        ({"tasks": 2, "repeat": 2, "policy": "C5"}, {"tasks": 1, "repeat": 3, "policy": "C4"}),
    ],
)
async def test_servers_of_different_batch_policy_and_pace_all_come_to_their_end(
    pair: dict[str, LiveServer], small: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    seen: Counter[str] = Counter()

    async def now_and_then(episode: AsyncGroupEpisode, task: Task) -> float:
        seen[task.task_id] += 1
        if sum(seen.values()) % 5 == 0:
            raise LookupError("no data")
        return await both(episode, task)

    async with AsyncSwarmGroup(clients(pair)) as group:
        base = {**small, "stop_at_step": 2}
        await group.configure(
            {
                "small": {**base, "batch": {"drain_deadline_s": 0.2, **one}},
                "large": {**base, "batch": {"drain_deadline_s": 0.2, **other}, "stop_at_step": 3},
            }
        )
        await group.start()
        run = await run_episodes_async(TASKS, now_and_then, client=group, stall_timeout_s=30.0)
        statuses = await group.status()
    assert run.ended == "training_complete"
    assert {s.state for s in statuses.values()} == {EngineState.TRAINED}


async def test_stop_ends_the_run_with_the_first_server_that_is_trained(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    async with AsyncSwarmGroup(clients(pair), when_trained="stop") as group:
        await group.configure({"small": {**small, "stop_at_step": 1}, "large": small})
        await group.start()
        run = await run_episodes_async(TASKS, both, client=group)
        statuses = await group.status()
    assert run.ended == "training_complete"
    assert statuses["large"].step < 3


def test_a_plain_function_plays_in_threads(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    def plain(episode: GroupEpisode, task: Task) -> float:
        for role in episode.ids:
            episode.role(role).chat([{"role": "user", "content": str(task.payload["n"])}])
        rewards = {"small": 1.0, "large": float(episode.grant.repeat_index)}
        episode.finish(rewards=rewards)
        return 0.0

    servers = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(servers) as group:
        group.configure(dict.fromkeys(pair, small))
        group.start()
        run = run_episodes(TASKS, plain, client=group)
        means = {s: [m.reward_mean for m in steps] for s, steps in group.metrics().items()}
    assert (run.finished, run.failed, run.ended) == (12, 0, "training_complete")
    assert means == {"small": [1.0] * 3, "large": [0.5] * 3}


async def test_an_evaluation_plays_all_roles_and_trains_nothing(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    async with AsyncSwarmGroup(clients(pair)) as group:
        await group.configure(dict.fromkeys(pair, small))
        await group.start()
        report = await run_eval_async(
            TASKS[:3], both, client=group, scorer=lambda _task, trace: float(len(trace.calls))
        )
        pools = [await c.pool() for c in group.servers.values()]
    assert report.scores == [1.0] * 3
    assert [p.episodes_finished for p in pools] == [0, 0]


# --- with an outside model -------------------------------------------------------------------------------------


async def judged(episode: AsyncGroupEpisode, task: Task) -> float:
    await both(episode, task)
    verdict = await episode.role("judge").chat([{"role": "user", "content": "Good?"}])
    return float(len(verdict.text) + episode.grant.repeat_index)


async def test_what_an_outside_model_costs_is_booked_with_the_episode(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    with outside_model(text="yes") as judge:
        model = ExternalModel(judge.base_url, "judge-1", secret="KEY", price=Price(3.0, 15.0))
        options: dict[str, Any] = {"externals": {"judge": model}, "secrets": {"KEY": "sk-1"}}
        async with AsyncSwarmGroup(clients(pair), **options) as group:
            await group.configure({n: {**small, "stop_at_step": 1} for n in pair})
            await group.start()
            ids: list[dict[str, str]] = []

            async def noted(episode: AsyncGroupEpisode, task: Task) -> float:
                ids.append(episode.ids)
                return await judged(episode, task)

            run = await run_episodes_async(TASKS, noted, client=group)
            trace = await group.servers["large"].trace(ids[0]["large"])
            usage = group.usage["judge"]
    assert run.finished == 4
    assert trace.metrics["external_cost_usd"] == pytest.approx(0.00315)
    assert trace.metrics["external_completion_tokens"] == 10.0
    assert (usage.calls, usage.cost_usd) == (4, pytest.approx(4 * 0.00315))


async def test_an_outage_of_an_outside_model_is_nobodys_failure_and_the_run_goes_on(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    with outside_model(text="yes", down=True) as judge:
        model = ExternalModel(judge.base_url, "judge-1", patience_s=0.1)
        async with AsyncSwarmGroup(clients(pair), externals={"judge": model}) as group:
            await group.configure({n: {**small, "stop_at_step": 1} for n in pair})
            await group.start()
            played = 0

            async def until_it_is_back(episode: AsyncGroupEpisode, task: Task) -> float:
                nonlocal played
                played += 1
                judge.down = played <= 4
                return await judged(episode, task)

            run = await run_episodes_async(
                TASKS, until_it_is_back, client=group, max_consecutive_failures=1
            )
            metrics = await group.metrics()
    assert (run.finished, run.failed) == (4, 0)
    assert run.lost >= 1
    assert {s: [m.episodes for m in ms] for s, ms in metrics.items()} == {
        "small": [4],
        "large": [4],
    }


async def test_an_outage_that_an_agent_swallows_still_ends_its_episode_unless_the_model_is_optional(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    with outside_model(down=True) as judge:
        must = ExternalModel(judge.base_url, "judge-1", patience_s=0.1)
        may = ExternalModel(judge.base_url, "judge-2", patience_s=0.1, optional=True)
        externals = {"must": must, "may": may}
        async with AsyncSwarmGroup(clients(pair), externals=externals) as group:
            await group.configure(dict.fromkeys(pair, small))
            await group.start()
            async with group.episode("t1") as episode:
                with pytest.raises(ExternalModelDown):
                    await episode.role("may").chat([{"role": "user", "content": "?"}])
                assert (await episode.finish(1.0)).accepted
            async with group.episode("t1") as episode:
                with pytest.raises(ExternalModelDown):
                    await episode.role("must").chat([{"role": "user", "content": "?"}])
                with pytest.raises(ExternalModelDown, match="cannot be finished"):
                    await episode.finish(1.0)
                assert episode.outcome is not None
                assert not episode.outcome.accepted
            pools = [await c.pool() for c in group.servers.values()]
    assert [p.episodes_finished for p in pools] == [1, 1]


async def test_a_run_gives_up_on_a_model_that_stays_away(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    with outside_model(down=True) as judge:
        model = ExternalModel(judge.base_url, "judge-1", patience_s=0.1)
        options: dict[str, Any] = {"externals": {"judge": model}, "outage_limit_s": 0.5}
        async with AsyncSwarmGroup(clients(pair), **options) as group:
            await group.configure(dict.fromkeys(pair, small))
            await group.start()
            with pytest.raises(ExternalModelDown, match="has been down for"):
                await run_episodes_async(TASKS, judged, client=group)
            pools = [await c.pool() for c in group.servers.values()]
    assert [p.episodes_open for p in pools] == [0, 0]


# --- order of tasks --------------------------------------------------------------------------------------------


async def test_a_stream_goes_on_where_the_servers_cursor_stands(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    seen: list[list[str]] = []
    for until in (1, None):
        named = {n: AsyncSwarmClient(s.url, s.tokens.admin, "me") for n, s in pair.items()}
        async with AsyncSwarmGroup(named) as group:
            if until:
                await group.configure(dict.fromkeys(pair, small))
                await group.start()
            tasks: list[str] = []
            seen.append(tasks)

            async def noted(
                episode: AsyncGroupEpisode, task: Task, tasks: list[str] = tasks
            ) -> float:
                tasks.append(task.task_id)
                return await both(episode, task)

            stream = TaskStream(TASKS)
            await run_episodes_async(
                stream, noted, client=group, until_step=until, resume=until is None
            )
    assert [sorted(set(tasks)) for tasks in seen] == [["t0", "t1"], ["t2", "t3", "t4", "t5"]]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [({"tasks": 2, "repeat": 2}, [4, 4, 4]), ({"tasks": 1, "repeat": 3}, [3, 3, 3])],
)
async def test_two_groups_share_one_queue(
    pair: dict[str, LiveServer], small: dict[str, Any], batch: dict[str, int], expected: list[int]
) -> None:
    seen: Counter[str] = Counter()

    async def noted(episode: AsyncGroupEpisode, task: Task) -> float:
        assert {m.grant.task_id for m in episode.grant.members.values()} == {task.task_id}
        seen[task.task_id] += 1
        return await both(episode, task)

    async with AsyncSwarmGroup(clients(pair)) as one, AsyncSwarmGroup(clients(pair)) as two:
        await one.configure({"small": small, "large": {**small, "batch": batch}})
        await one.start()
        runs = await asyncio.gather(
            *(
                run_episodes_async(TASKS[:6], noted, client=group, shared=True, parallel=2)
                for group in (one, two)
            )
        )
        metrics = await one.metrics()
    assert {r.ended for r in runs} == {"training_complete"}
    assert {s: [m.episodes for m in ms] for s, ms in metrics.items()} == {
        "small": [4, 4, 4],
        "large": expected,
    }
    # Equal servers go through the list; a task that one server still misses members of comes before a new one.
    assert len(seen) == 6 or batch["repeat"] == 3
