"""uvicorn in the daemon's main thread, ended in order by signals or by a request."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
import uvloop

from a3r.cli.daemon.door import KEEP_ALIVE_S, Door

GRACE_S = 3
THREADS = 32
"""For what the person asks; the requests of workers have threads of their own (``a3r.hub.state``)."""


class HubServer:
    """Serves one app on one listening socket, and through a door for workers of other hosts where there is one."""

    def __init__(
        self, sock: socket.socket, doors: Sequence[tuple[Door, socket.socket]] = ()
    ) -> None:
        """``doors``: each with the socket that it listens on."""
        self._sock, self._doors = sock, tuple(doors)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None

    def run(
        self, app: Any, on_listening: Callable[[], None], before_close: Callable[[], None]
    ) -> None:
        """Serve until stopped. ``before_close`` lets long polls go, so that the end does not wait for them."""
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config, on_listening, before_close)
        others = [(_Server(d.config(app), _nothing, _nothing), s) for d, s in self._doors]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(self._server, others))

    async def _serve(self, server: _Server, others: list[tuple[_Server, socket.socket]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="routes"))
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, server.end)
        # In one loop: the hub's long polls are woken in the loop that holds them.
        doors = [asyncio.create_task(o.serve(sockets=[s])) for o, s in others]
        await server.serve(sockets=[self._sock])
        for other, _ in others:
            other.end()
        await asyncio.gather(*doors)

    def stop(self) -> None:
        """End in order; from any thread."""
        if self._loop is not None and self._server is not None:
            self._loop.call_soon_threadsafe(self._server.end)


def _nothing() -> None:
    """Do nothing."""


class _Server(uvicorn.Server):
    """uvicorn that tells when it listens and leaves the signals to us."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_listening: Callable[[], None],
        before_close: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_listening = on_listening
        self._before_close = before_close

    def end(self) -> None:
        """First call: in order. Second: at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._before_close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals alone: uvicorn would raise them again after the shutdown."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then announce."""
        await super().startup(sockets)
        self._on_listening()
