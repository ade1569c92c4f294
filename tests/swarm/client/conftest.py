"""A live toy server for each test that asks for one, and sockets that misbehave."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.testing.server_fixture import LiveServer, live_server

SMALL: dict[str, Any] = {
    "engine": "toy",
    "stop_at_step": 3,
    "batch": {"tasks": 2, "repeat": 2, "drain_deadline_s": 0.2},
}


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / "state") as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Generator[SwarmClient]:
    """An admin's client of a server that serves the small config."""
    with SwarmClient(server.url, server.tokens.admin) as one:
        one.configure(SMALL)
        one.start()
        yield one


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncGenerator[AsyncSwarmClient]:
    async with AsyncSwarmClient(server.url, server.tokens.admin) as one:
        await one.configure(SMALL)
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


def http(status: str, body: bytes, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextmanager
def scripted_server(replies: list[bytes]) -> Generator[tuple[str, Callable[[], int]]]:
    """Answer one connection after another with these bytes (empty = cut it); yields the URL and a counter of requests."""
    served: list[int] = []

    def serve(listener: socket.socket) -> None:
        for reply in replies:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                served.append(1)
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: len(served)
    thread.join(6)
