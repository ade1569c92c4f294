"""On a Ray cluster of others, with pretended GPUs: a server and a second engine share it, and what it cannot hold is refused in words."""

import asyncio
import json
import os
import signal

import pytest

from swarm.client import SwarmClient, run_episodes
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed
from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.nonces import NONCE, PREFIX, state_nonce
from swarm.tasks import calculator
from swarm.testing.engine_kit import Bench
from swarm.testing.ray_cluster import ENVIRONMENT, ray_cluster
from swarm.testing.server_process import server_process
from swarm.testing.waiting import retry_until

pytestmark = [pytest.mark.verl, pytest.mark.timeout(2400)]

GROUPS = """
import json
from ray.util import placement_group_table
groups = {r["name"]: r["state"] for r in placement_group_table().values()}
print(json.dumps([groups, ray.available_resources().get("GPU", 0)]))
"""
CPU = {**ENVIRONMENT, "VERL_PLATFORM": "cpu"}


def config_of(cluster, *, gpus=1, hang_s=1800.0):
    verl = {"ray_address": cluster.address, "gpus_per_node": gpus}
    return TrainConfig.model_validate(
        {
            "engine": "verl",
            "verl": verl,
            "engine_hang_s": hang_s,
            "batch": {"tasks": 2, "repeat": 4},
            "sampling": {"max_response_tokens": 16},
            "episode": {"idle_deadline_s": 1800.0, "total_deadline_s": 3600.0},
            "stop_at_step": 1,
        }
    )


def groups(cluster):
    """Placement groups that stand, and GPUs that are free."""
    table, free = json.loads(cluster.ask(GROUPS))
    return sorted(name for name, state in table.items() if state == "CREATED"), free


def engine(nonce):
    return EngineHost("swarm.server.engine_verl.child", {**CPU, NONCE: nonce})


async def test_servers_share_a_cluster_with_gpus_of_their_own(tmp_path, monkeypatch):
    for name, value in CPU.items():
        monkeypatch.setenv(name, value)
    state = tmp_path / "state"
    mine = f"{PREFIX}{state_nonce(state)}-"
    with (
        ray_cluster(2, cpus=16) as cluster,
        server_process(state, "--engine", "verl") as server,
        SwarmClient(server.url, server.token(), chat_timeout_s=1800) as client,
    ):
        client.configure(config_of(cluster).model_dump(mode="json"))
        client.start()
        bench = Bench(lambda: engine("other"), config_of(cluster), tmp_path)
        await bench.boot()
        try:
            held, free = groups(cluster)
            assert [name.startswith((mine, f"{PREFIX}other-")) for name in held] == [True] * 2
            assert free == 0
            assert (await bench.engine.generate(bench.ask())).token_ids
            await asyncio.to_thread(play, client)
            assert [m.updated for m in client.metrics(0)] == [True]

            with pytest.raises(ConfigError, match=r"too few GPUs.*1 x 3.*have 2 GPUs"):
                await engine("third").boot(config_of(cluster, gpus=3))
            with pytest.raises(EngineFailed, match="became free in 20 s") as refused:
                await engine("fourth").boot(config_of(cluster, hang_s=20.0))
            assert all(name in refused.value.message for name in held)

            os.kill(bench.engine.pid, signal.SIGKILL)
            await bench.engine.died()
            await retry_until(
                lambda: groups(cluster) == ([n for n in held if n.startswith(mine)], 1.0),
                timeout_s=120,
            )
            assert client.status().step == 1, "the other server goes on"
        finally:
            await bench.engine.close()


def play(client):
    run_episodes(
        calculator.CalculatorTasks(exclude=[]),
        calculator.run_agent,
        client=client,
        task_set="calculator",
        parallel=4,
        until_step=1,
    )
