"""Policies by agreement and task mixes, through the client library and a real port."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient, Task, run_episodes_async
from swarm.client.episode import AsyncEpisode
from swarm.protocol.errors import StateError
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.records import StepMetrics
from swarm.server.service.quotas import sequence
from swarm.testing import ToyFleet
from swarm.testing.live_server import LiveServer, live_server


def numbered(count: int = 200) -> list[Task]:
    return [Task(f"t{i}", {"n": i}) for i in range(count)]


def another(server: LiveServer, name: str) -> AsyncSwarmClient:
    return AsyncSwarmClient(server.url, server.tokens.client, client_id=name)


async def play(episode: AsyncEpisode, task: Task) -> float:
    await episode.chat([{"role": "user", "content": f"Compute {task.payload['n']}+1."}])
    return float(episode.grant.repeat_index)


async def configured(server: LiveServer, **body: Any) -> AsyncSwarmClient:
    admin = AsyncSwarmClient(server.url, server.tokens.admin)
    await admin.configure({"engine": "toy", "stop_at_step": 3, **body})
    await admin.start()
    return admin


async def test_run_episodes_agrees_when_it_has_nothing_left_to_do(server: LiveServer) -> None:
    batch = {"policy": "C4", "tasks": 3, "repeat": 2, "drain_deadline_s": 5.0}
    async with (
        await configured(server, batch=batch) as admin,
        another(server, "a") as a,
        another(server, "b") as b,
    ):
        runs = await asyncio.gather(
            run_episodes_async(numbered(), play, client=a, parallel=2, data_seed=1),
            run_episodes_async(numbered(), play, client=b, parallel=2, data_seed=2),
        )
        assert all(run.ended == "training_complete" for run in runs)
        metrics = await admin.metrics()
    assert [m.agreed for m in metrics] == [["a", "b"]] * 3
    assert [(m.groups, m.updated) for m in metrics] == [(3, True)] * 3


async def test_agree_when_lets_a_client_take_the_step_early(server: LiveServer) -> None:
    def early(pool: PoolSnapshot) -> bool:
        return pool.groups_complete >= 2

    batch = {"policy": "C5", "tasks": 50, "repeat": 2, "drain_deadline_s": 5.0}
    async with await configured(server, batch=batch) as admin, another(server, "a") as a:
        run = await run_episodes_async(
            numbered(), play, client=a, parallel=2, agree_when=early, until_step=2
        )
        assert run.ended == "until_step"
        metrics = await admin.metrics()
    assert all(2 <= m.groups < 20 for m in metrics)


def test_a_synchronous_client_agrees_by_hand(server: LiveServer) -> None:
    with SwarmClient(server.url, server.tokens.admin, client_id="me") as client:
        client.configure(
            {"engine": "toy", "stop_at_step": 2, "batch": {"policy": "C5", "tasks": 4, "repeat": 2}}
        )
        client.start()
        for seat in range(2):
            with client.episode("t") as episode:
                episode.chat([{"role": "user", "content": "Compute 1+1."}])
                episode.finish(float(seat))
        reply = client.agree()
        assert (reply.step, reply.agreed, reply.fires) == (0, ["me"], True)
        assert client.wait_step(0, 30).step == 1
        assert client.agree(0) == reply  # its answer may have been lost
        with pytest.raises(StateError, match="has not begun"):
            client.agree(5)
        assert client.metrics()[0].agreed == ["me"]


async def test_an_agreement_to_a_server_that_restarted_registers_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with live_server(state) as first:
        port = int(first.url.rpartition(":")[2])
        admin = await configured(first, batch={"policy": "C5", "tasks": 2, "repeat": 2})
        for seat in range(2):
            async with admin.episode("t") as episode:
                await episode.chat([{"role": "user", "content": "Compute 1+1."}])
                await episode.finish(float(seat))
    async with admin:
        with live_server(state, resume=True, port=port):
            assert (await admin.agree(0)).fires
            assert (await admin.wait_step(0, 30)).step == 1


@pytest.mark.parametrize("policy", ["C1", "C2", "C3"])
async def test_three_clients_fill_the_exact_shares_of_a_mix(
    server: LiveServer, policy: str
) -> None:
    shares = {"math": 0.4, "code": 0.3, "terminal": 0.3}
    batch = {
        "policy": policy,
        "tasks": 5,
        "repeat": 2,
        "mix": shares,
        "max_groups_factor": 50,
        "drain_deadline_s": 5.0,
    }
    async with (
        await configured(server, batch=batch, stop_at_step=4) as admin,
        another(server, "m") as math,
        another(server, "c") as code,
        another(server, "t") as terminal,
    ):
        clients = {"math": math, "code": code, "terminal": terminal}
        await asyncio.gather(
            *(
                run_episodes_async(numbered(), play, client=client, task_set=name, parallel=4)
                for name, client in clients.items()
            )
        )
        metrics = await admin.metrics()
    units = 10 if policy == "C1" else 5
    order = sequence(shares, {}, 4 * units)
    taken = [Counter(order[i * units : (i + 1) * units]) for i in range(4)]
    assert [m.task_sets for m in metrics] == taken
    assert total(metrics) == {name: share * 4 * units for name, share in shares.items()}


def total(metrics: list[StepMetrics]) -> Counter[str]:
    return sum((Counter(m.task_sets) for m in metrics), Counter[str]())


async def test_shared_queues_a_mix_and_a_throttle_work_together(server: LiveServer) -> None:
    batch = {"tasks": 4, "repeat": 2, "mix": {"a": 0.5, "b": 0.5}, "drain_deadline_s": 5.0}
    async with (
        await configured(server, batch=batch, stop_at_step=4) as admin,
        another(server, "a1") as a1,
        another(server, "a2") as a2,
        another(server, "b1") as b1,
    ):
        runs = await asyncio.gather(
            *(
                run_episodes_async(
                    numbered(8), play, client=client, task_set=name, shared=True, throttle=1.0
                )
                for client, name in ((a1, "a"), (a2, "a"), (b1, "b"))
            )
        )
        assert sum(run.finished for run in runs) == 32
        assert [m.task_sets for m in await admin.metrics()] == [{"a": 2, "b": 2}] * 4
        queues = {q.name: q.handed_out for q in await admin.task_queues()}
        assert queues == {"a": 8, "b": 8}


async def test_an_agreement_by_hand_is_about_the_step_of_the_pool_while_an_update_runs(
    server: LiveServer,
) -> None:
    batch = {"policy": "C5", "tasks": 1, "repeat": 2}
    async with await configured(server, batch=batch, asynchronous={"enabled": True}) as client:
        assert isinstance(server.fleet, ToyFleet)
        server.fleet.latest.train_gate = asyncio.Event()  # the first update never ends
        for seat in range(2):
            async with client.episode("t") as episode:
                await episode.chat([{"role": "user", "content": "Compute 1+1."}])
                await episode.finish(float(seat))
        await client.agree()
        assert (await client.poll_step(0, 10, opened=True)).updating
        assert (await client.agree()).step == 1
        assert (await asyncio.to_thread(agreed_step, server)) == 1


def agreed_step(server: LiveServer) -> int:
    with SwarmClient(server.url, server.tokens.admin, client_id="sync") as client:
        return client.agree().step
