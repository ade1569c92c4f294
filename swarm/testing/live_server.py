"""A real swarm server in a thread: real sockets, the toy engine, a state folder of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import urllib3
import uvicorn

from swarm.server.keys import Tokens
from swarm.server.ports import Engine
from swarm.server.routes.app import create_app
from swarm.server.service.service import LEASE_S, SwarmService
from swarm.testing import engines

START_S = 10.0


@dataclass
class LiveServer:
    """Where a test's server listens; ``fleet`` makes (and remembers) its engines."""

    url: str
    tokens: Tokens = field(repr=False)
    state_dir: Path
    fleet: Callable[[str], Engine]


@contextmanager
def live_server(
    state_dir: Path,
    fleet: Callable[[str], Engine] | None = None,
    *,
    resume: bool = False,
    port: int = 0,
    lease_s: float = LEASE_S,
) -> Generator[LiveServer]:
    """Serve until the block ends. A second server on the same ``state_dir`` with ``resume`` takes the run up.

    Args:
        state_dir: journal, checkpoints and tokens.
        fleet: makes engines; by default a ``ToyFleet``, or who lends (``swarm.testing.engines``).
        resume: read the journal and boot.
        port: 0 = any free one.
        lease_s: of registered clients.
    """
    made = fleet or engines.fleet()
    tokens = Tokens.load(state_dir)
    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = _ServerThread(state_dir, made, tokens, listener, resume=resume, lease_s=lease_s)
        thread.start()
        try:
            thread.wait_until_listening()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            # A router is built when a request first gets to it, with warnings filtered for the whole process: servers in
            # threads must not do that at the same time. A path that nobody serves gets to all of them.
            urllib3.request("GET", f"{url}/nowhere", timeout=START_S, retries=False)
            yield LiveServer(url, tokens, state_dir, made)
        finally:
            thread.end()


class _ServerThread(threading.Thread):
    """One event loop with one service and one uvicorn."""

    def __init__(
        self,
        state_dir: Path,
        fleet: Callable[[str], Engine],
        tokens: Tokens,
        listener: socket.socket,
        *,
        resume: bool,
        lease_s: float,
    ) -> None:
        super().__init__(name="live-server", daemon=True)
        self._state_dir, self._fleet, self._tokens = state_dir, fleet, tokens
        self._listener, self._resume, self._lease_s = listener, resume, lease_s
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Thread body."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        service = await SwarmService.open(
            state_dir=self._state_dir,
            engine_factory=self._fleet,
            tokens=self._tokens,
            resume=self._resume,
            lease_s=self._lease_s,
        )
        try:
            if self._resume:
                await service.start()
            config = uvicorn.Config(
                create_app(service, self._tokens),
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=1,
            )
            self._server = uvicorn.Server(config)
            self._ready.set()  # the socket listens already; connections wait for the loop
            await self._server.serve(sockets=[self._listener])
        finally:
            await service.close()

    def wait_until_listening(self) -> None:
        """Return once requests are served; raise what kept the server from starting."""
        if not self._ready.wait(START_S):
            raise TimeoutError(f"the server did not start within {START_S} s")
        self._raise_failure()

    def end(self) -> None:
        """Shut down in order and raise what failed in the thread."""
        if self._server is not None:
            self._server.should_exit = True
        self.join(START_S)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the live server failed") from self._failure
