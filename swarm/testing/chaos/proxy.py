"""A TCP proxy that understands just enough HTTP to misbehave at a chosen request: it cuts, delays, repeats and reorders.

A thread with an event loop of its own. What it does to which request is ordered one misbehaviour at a time (``order``), or drawn
by chance for every request (``rate``).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from swarm.testing.chaos.http_bytes import Message, read_message

START_S = 10.0
DELAY_S = 0.4
HOLD_S = 0.3
"""A held request goes on when another one has passed, or after this."""
REPEAT_AFTER = 3
"""Requests that pass before a late repeat is sent."""


class Trouble(StrEnum):
    """What happens to one request."""

    CUT_REQUEST = "cut request"  # half of it reaches the server, then both sides are cut
    REFUSE = "refuse"  # nothing reaches the server
    CUT_ANSWER = "cut answer"  # the server acts; half of its answer arrives
    SWALLOW_ANSWER = (
        "swallow answer"  # the server acts; the connection is reset instead of an answer
    )
    DELAY = "delay"
    REPEAT = "repeat"  # the server gets it twice at once
    REPEAT_LATE = "repeat late"  # the server gets it again after other requests
    HOLD = "hold"  # a later request overtakes it


UNREPEATABLE = "/v1/"
"""A call that is sent twice is two samples; nothing between an agent and the server may repeat it, and the proxy does not."""


@dataclass(slots=True)
class _Order:
    trouble: Trouble
    match: str


class ChaosProxy:
    """Forwards ``url`` to a port of this machine; ``done`` counts what it did, by trouble."""

    def __init__(self, upstream_port: int, *, rate: float = 0.0, seed: int = 0) -> None:
        self.upstream_port = upstream_port
        self.rate = rate
        """Share of requests that meet a trouble by chance."""
        self.done: Counter[Trouble] = Counter()
        self.port = 0
        self._rng = random.Random(seed)  # noqa: S311 - mischief, not a secret
        self._order: _Order | None = None
        self._passed = 0
        self._late: list[tuple[int, Message]] = []
        self._stirred = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"

    def order(self, trouble: Trouble, match: str) -> None:
        """Let the next request whose path contains ``match`` meet ``trouble``."""
        self._order = _Order(trouble, match)

    @property
    def pending(self) -> bool:
        """Whether the order still waits for its request."""
        return self._order is not None

    def cancel(self) -> None:
        """Forget the order."""
        self._order = None

    async def serve(self, listener: socket.socket) -> None:
        """Forward until cancelled."""
        self.port = listener.getsockname()[1]
        server = await asyncio.start_server(self._client, sock=listener)
        try:
            await server.serve_forever()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        line = _Line(reader, writer, self.upstream_port)
        try:
            while request := await read_message(reader):
                if not await self._exchange(line, request):
                    break
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # one side went away: so does the other
        finally:
            line.close()

    async def _exchange(self, line: _Line, request: Message) -> bool:
        """Forward one request and its answer; False when the connection was cut on purpose."""
        trouble = self._draw(request)
        if trouble is None:
            await line.forward(request)
            self._note_passed()
            return True
        self.done[trouble] += 1
        return await self._trouble(line, request, trouble)

    async def _trouble(self, line: _Line, request: Message, trouble: Trouble) -> bool:
        if trouble is Trouble.REFUSE:
            line.reset()
        elif trouble is Trouble.CUT_REQUEST:
            await line.send_part(request)
            line.reset()
        elif trouble in (Trouble.CUT_ANSWER, Trouble.SWALLOW_ANSWER):
            answer = await line.ask(request)
            if trouble is Trouble.CUT_ANSWER:
                await line.answer_part(answer)
            line.reset()
        else:
            await self._late_or_twice(line, request, trouble)
            self._note_passed()
            return True
        return False

    async def _late_or_twice(self, line: _Line, request: Message, trouble: Trouble) -> None:
        if trouble is Trouble.DELAY:
            await asyncio.sleep(DELAY_S)
        elif trouble is Trouble.HOLD:
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), HOLD_S)
        elif trouble is Trouble.REPEAT:
            self._spawn(request)
        else:
            self._late.append((self._passed + REPEAT_AFTER, request))
        await line.forward(request)

    def _draw(self, request: Message) -> Trouble | None:
        order = self._order
        if order is not None and order.match in request.path:
            self._order = None
            return order.trouble
        if self.rate and self._rng.random() < self.rate:
            trouble = self._rng.choice(list(Trouble))
            repeats = trouble in (Trouble.REPEAT, Trouble.REPEAT_LATE)
            return None if repeats and request.path.startswith(UNREPEATABLE) else trouble
        return None

    def _note_passed(self) -> None:
        self._passed += 1
        self._stirred.set()
        due = [request for at, request in self._late if at <= self._passed]
        self._late = [(at, request) for at, request in self._late if at > self._passed]
        for request in due:
            self._spawn(request)

    def _spawn(self, request: Message) -> None:
        task = asyncio.get_running_loop().create_task(self._once_more(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _once_more(self, request: Message) -> None:
        """Send a request on a connection of its own and throw the answer away."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
            try:
                writer.write(request.raw)
                await read_message(reader)
            finally:
                writer.close()


class _Line:
    """One client connection and its upstream, opened with the first request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream_port: int
    ) -> None:
        self._reader, self._writer, self._port = reader, writer, upstream_port
        self._up: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Message) -> Message:
        """Send upstream and return the answer."""
        reader, writer = await self._upstream()
        writer.write(request.raw)
        answer = await read_message(reader)
        if answer is None:
            raise ConnectionResetError("the server hung up")
        return answer

    async def forward(self, request: Message) -> None:
        """Send upstream, and the answer back."""
        answer = await self.ask(request)
        self._writer.write(answer.raw)
        await self._writer.drain()

    async def send_part(self, request: Message) -> None:
        """Send half of the request upstream."""
        _, writer = await self._upstream()
        writer.write(request.raw[: len(request.raw) // 2])
        await writer.drain()

    async def answer_part(self, answer: Message) -> None:
        """Send half of the answer back."""
        self._writer.write(answer.raw[: len(answer.raw) // 2])
        await self._writer.drain()

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._up is None:
            self._up = await asyncio.open_connection("127.0.0.1", self._port)
        return self._up

    def reset(self) -> None:
        """Cut both sides with a reset instead of an orderly end."""
        for writer in (self._writer, *([self._up[1]] if self._up else [])):
            sock = writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close both sides. Safe to call twice."""
        self._writer.close()
        if self._up is not None:
            self._up[1].close()


@contextmanager
def chaos_proxy(upstream_port: int, *, rate: float = 0.0, seed: int = 0) -> Generator[ChaosProxy]:
    """Run a proxy in a thread until the block ends."""
    proxy = ChaosProxy(upstream_port, rate=rate, seed=seed)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.port = listener.getsockname()[1]
    loop = asyncio.new_event_loop()
    serving = loop.create_task(proxy.serve(listener))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run, name="chaos-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(START_S)
