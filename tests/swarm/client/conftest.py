"""A live toy server for each test that asks for one, and sockets that misbehave."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.testing.engines import engine_name
from swarm.testing.live_server import LiveServer, live_server


@pytest.fixture
def small() -> dict[str, Any]:
    """A training config of three steps of two groups of two."""
    return {
        "engine": engine_name(),
        "stop_at_step": 3,
        "batch": {"tasks": 2, "repeat": 2, "drain_deadline_s": 0.2},
    }


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / "state") as live:
        yield live


@pytest.fixture
def client(server: LiveServer, small: dict[str, Any]) -> Generator[SwarmClient]:
    """An admin's client of a server that serves the small config."""
    with SwarmClient(server.url, server.tokens.admin) as one:
        one.configure(small)
        one.start()
        yield one


@pytest.fixture
async def async_client(
    server: LiveServer, small: dict[str, Any]
) -> AsyncGenerator[AsyncSwarmClient]:
    async with AsyncSwarmClient(server.url, server.tokens.admin) as one:
        await one.configure(small)
        await one.start()
        yield one


@pytest.fixture
def silent_url() -> Generator[str]:
    """A socket that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
