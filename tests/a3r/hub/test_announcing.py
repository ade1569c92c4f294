"""A real `swarm serve` that announces itself to a real hub, and `swarm list` that finds it there."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from a3r.hub.app import create_app
from a3r.hub.settings import HubSettings
from a3r.hub.tokens import HubTokens
from a3r.testing.waiting import retry_until
from swarm.client import SwarmClient
from swarm.testing.server_process import server_process

TOKENS = HubTokens(admin="admin-token", worker="worker-token")


@pytest.fixture
def hub(store: Any, clock: Any, told: Any, tmp_path: Path) -> Iterator[str]:
    """The address of a hub on a real port; its clock stands still, so that it forgets nobody by itself."""
    settings = HubSettings(workspace=tmp_path, epoch="e1", started_at=clock.now)
    app = create_app(store, TOKENS, settings, told.hooks(), clock=clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = threading.Thread(target=lambda: asyncio.run(server._serve(sockets=[listener])))
        serving.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        serving.join(10)
    app.state.hub.close()


def swarm_list(hub: str, *more: str, token: str = "admin-token") -> Any:
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli", "list", "--hub", hub, *more],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "SWARM_HUB_TOKEN": token},
    )


def servers(hub: str) -> list[dict[str, Any]]:
    return json.loads(swarm_list(hub, "--json").stdout)


@pytest.mark.timeout(120)
def test_a_server_is_found_through_the_hub_from_its_start_to_its_end(
    hub: str, tmp_path: Path
) -> None:
    token = tmp_path / "hub.token"
    token.write_text(TOKENS.worker + "\n")
    options = ("--announce", hub + "/", "--announce-token-file", str(token))
    with server_process(tmp_path / "s", *options, "--announce-url", "https://gpu7:1/x") as server:
        (row,) = retry_until(lambda: servers(hub))
        with SwarmClient(server.url, server.token()) as client:
            assert (row["server_id"], row["url"]) == (client.status().server_id, "https://gpu7:1/x")
            assert (row["state"], row["model"], row["waiting"]) == ("OFFLINE", None, True)
            assert row["pid"] == server.process.pid
            client.configure({"engine": "toy"})
            client.start()
            # A change of state is told long before the record is due.
            (row,) = retry_until(lambda: [r for r in servers(hub) if r["state"] == "ROLLING"])
            assert (row["model"], row["waiting"]) == ("builtin:tiny-calc", False)
        assert "ROLLING" in swarm_list(hub).stdout
        assert swarm_list(hub, "--waiting").stdout == "No servers.\n"
    assert servers(hub) == []
    log = (tmp_path / "s" / "server.log").read_text()
    assert "worker-token" not in log
    assert "Traceback" not in log


@pytest.mark.timeout(120)
def test_a_server_that_the_hub_refuses_says_so_once_and_serves(hub: str, tmp_path: Path) -> None:
    token = tmp_path / "hub.token"
    token.write_text("guess\n")
    with server_process(
        tmp_path / "s", "--announce", hub, "--announce-token-file", str(token)
    ) as server:
        log = tmp_path / "s" / "server.log"
        retry_until(lambda: "HTTP 401" in log.read_text())
        with SwarmClient(server.url, server.token()) as client:
            assert client.status().pid == server.process.pid
    assert servers(hub) == []


def test_list_tells_a_wrong_token_and_an_absent_hub(hub: str) -> None:
    wrong = swarm_list(hub, token="guess")
    assert wrong.returncode == 1
    assert "hint:" in wrong.stderr
    away = swarm_list("http://127.0.0.1:1", "--json")
    assert away.returncode == 3
    assert json.loads(away.stdout)["error"]["code"] == "server_unreachable"
    portal = swarm_list(hub + "/health?x=", "--json")
    assert portal.returncode == 3
