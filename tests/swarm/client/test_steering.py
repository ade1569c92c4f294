"""Changing a running server's configuration and steering it alone, through both clients and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.protocol.errors import StateError
from swarm.protocol.states import ConfigEffect, EngineState
from swarm.testing.live_server import LiveServer

HELLO = [{"role": "user", "content": "Compute 1+2."}]


def swarm(*args: str, server: LiveServer, cwd: Path, **environ: str) -> Any:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SWARM_")}
    more = {"SWARM_URL": server.url, "SWARM_TOKEN": server.tokens.admin, **environ}
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, **more},
        timeout=60,
        check=False,
    )


def play_step(client: SwarmClient, step: int, tasks: int) -> None:
    for task in range(tasks):
        for reward in (0.0, 1.0):
            with client.episode(f"s{step}t{task}") as episode:
                episode.chat(HELLO)
                episode.finish(reward)
    client.wait_step(step, timeout_s=10)


def test_a_running_server_takes_a_change_at_the_next_step(
    client: SwarmClient, small: dict[str, Any]
) -> None:
    new = {**small, "optimizer": {"lr": 0.5}, "batch": {**small["batch"], "tasks": 1}}
    shown = client.configure(new, dry_run=True)
    assert {c.key: c.effect for c in shown} == {
        "optimizer.lr": ConfigEffect.STEP,
        "batch.tasks": ConfigEffect.STEP,
    }
    assert client.config_changes() == []
    assert client.configure(new) == shown
    assert client.configure(new) == []
    (record,) = client.config_changes()
    assert (record.step, record.who, record.changes) == (1, client.client_id, shown)
    assert (client.config().optimizer.lr, client.pool().tasks_target) == (0.5, 2)
    play_step(client, 0, tasks=2)
    play_step(client, 1, tasks=1)
    assert [(m.groups, m.lr) for m in client.metrics()] == [(2, 1e-4), (1, 0.5)]


def test_a_change_that_takes_more_is_refused_by_name(
    client: SwarmClient, small: dict[str, Any]
) -> None:
    new = {**small, "seed": 9, "sampling": {"max_response_tokens": 5}}
    with pytest.raises(StateError, match="seed: a new run") as refused:
        client.configure(new)
    assert "max_response_tokens: a restart of the engine" in refused.value.message
    client.stop()
    assert len(client.configure({**new, "seed": 0})) == 1
    assert client.start().step == 0


async def test_the_controller_steers_alone_until_it_closes(
    server: LiveServer, async_client: AsyncSwarmClient, small: dict[str, Any]
) -> None:
    new = {**small, "stop_at_step": 9}
    async with AsyncSwarmClient(server.url, server.tokens.admin, "ann/☂") as ann:
        lease = await ann.controller()
        assert (lease.client_id, lease.lease_s > 0) == ("ann/☂", True)
        assert (await async_client.status()).controller == "ann/☂"
        for refused in (async_client.stop, async_client.start, async_client.controller):
            with pytest.raises(StateError, match="ann"):
                await refused()
        with pytest.raises(StateError, match="controls this server"):
            await async_client.configure(new)
        assert len(await ann.configure(new)) == 1
    assert (await async_client.status()).controller == ""
    assert (await async_client.config_changes())[0].who == "ann/☂"
    await async_client.controller()
    assert (await async_client.controller(release=True)).lease_s == 0.0


def test_the_synchronous_controller_gives_its_lease_back(
    server: LiveServer, client: SwarmClient
) -> None:
    with SwarmClient(server.url, server.tokens.admin, "ann") as ann:
        ann.controller()
        ann.controller()
        with pytest.raises(StateError, match="ann"):
            client.controller()
    assert client.status().controller == ""
    with SwarmClient(server.url, server.tokens.admin, "bob") as bob:
        bob.controller()
        assert bob.controller(release=True).lease_s == 0.0
        assert client.status().controller == ""
        assert client.stop().state is EngineState.OFFLINE


def test_the_command_line_shows_applies_and_logs_changes(
    server: LiveServer, client: SwarmClient, tmp_path: Path
) -> None:
    def run(*args: str, **environ: str) -> Any:
        return swarm(*args, server=server, cwd=tmp_path, **environ)

    diff = run("config", "diff", "optimizer.lr=0.5", "seed=3", "sampling.max_response_tokens=7")
    assert diff.returncode == 0, diff.stderr
    assert "optimizer.lr: 0.0001 -> 0.5  (no restart: it holds from the next step)" in diff.stdout
    assert "seed: 0 -> 3  (a new run, from step 0)" in diff.stdout
    assert client.config().seed == 0
    applied = run("config", "apply", "optimizer.lr=0.5", SWARM_CLIENT_ID="ann")
    assert (applied.returncode, applied.stderr) == (0, "")
    logged = run("config", "log")
    assert logged.stdout.startswith("from step 1, at ")
    assert "by ann:\n  optimizer.lr: 0.0001 -> 0.5" in logged.stdout
    assert json.loads(run("config", "log", "--json").stdout)[0]["who"] == "ann"

    refused = run("config", "apply", "sampling.max_response_tokens=7")
    assert refused.returncode == 1
    assert "--restart" in refused.stderr
    restarted = run("config", "apply", "sampling.max_response_tokens=7", "--restart", "--json")
    assert json.loads(restarted.stdout)[0]["effect"] == "engine"
    assert client.status().state is EngineState.ROLLING
    play_step(client, 0, tasks=2)
    refused = run("config", "apply", "seed=3", "--restart")
    assert refused.returncode == 1
    assert "--new-run" in refused.stderr
    assert run("config", "apply", "seed=3", "--new-run").returncode == 0
    status = client.status()
    assert (status.state, status.step) == (EngineState.ROLLING, 0)


def test_the_command_line_takes_and_gives_back_the_controller_lease(
    server: LiveServer, client: SwarmClient, tmp_path: Path
) -> None:
    def run(*args: str, **environ: str) -> Any:
        return swarm("controller", *args, server=server, cwd=tmp_path, **environ)

    assert run("show").stdout == "Nobody.\n"
    assert run("take").returncode == 2
    taken = run("take", "--as", "ann")
    assert taken.stdout == "ann controls the server for 60 s.\n"
    assert json.loads(run("show", "--json").stdout) == {"controller": "ann"}
    other = run("take", "--as", "bob")
    assert other.returncode == 1
    assert "ann" in other.stderr
    stopped = swarm("config", "set", "seed=1", server=server, cwd=tmp_path, SWARM_CLIENT_ID="bob")
    assert stopped.returncode == 1
    assert run("release", SWARM_CLIENT_ID="ann").returncode == 0
    assert client.status().controller == ""
    shown = swarm("status", server=server, cwd=tmp_path).stdout
    assert f"server id       {client.status().server_id}" in shown
