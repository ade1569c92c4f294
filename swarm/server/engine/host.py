"""The front's half of the embedded engine: starts the child, sends it messages, hands its answers to who waits.

Imports no torch. One asyncio loop, no locks. What the child samples or trains is none of its business.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed, StateError
from swarm.server.engine.wire import (
    Abort,
    Beat,
    Boot,
    Close,
    Failure,
    FrameBuffer,
    Save,
    Saved,
    ToChild,
    ToFront,
    pack,
    read_for_front,
)
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult

logger = logging.getLogger(__name__)

CHILD = "swarm.server.engine.child"
CLOSE_WAIT_S = 5.0
BEAT_S = 1.0
"""How often a child says that it is alive, at least."""
LOOKS = 8
"""A child is hung when this many looks in a row, spread over ``engine_hang_s``, found that it had said nothing. Looks are
counted and no times compared, so that a front which was itself stopped for a while blames nobody."""
RESTART_HINT = (
    "The server restarts it from the last checkpoint; see status.failure when it does not."
)


OnLate = Callable[[Chunk | None], None]


class EngineHost:
    """Implements ``swarm.server.ports.Engine`` over a child process. ``boot`` may be called again after a death or ``close``."""

    def __init__(self, child: str = CHILD, environment: Mapping[str, str] | None = None) -> None:
        """``child`` is the module that runs as the engine's process, ``environment`` what it has beyond this process's own."""
        self._module = child
        self._environment = dict(environment or {})
        self._child: _Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the child, None before ``boot`` and after ``close``."""
        return self._child.process.pid if self._child else None

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """Start a child and load the model, or the checkpoint folder.

        Raises:
            ConfigError: The config names a model that cannot be loaded.
            EngineFailed: The child ended or could not load for another reason. No process is left behind.
            StateError: A child is already running.
        """
        if self._child is not None and self._child.alive:
            raise StateError(
                "The engine is already running.", hint="Close it before booting again."
            )
        await self.close()
        self._child = await _start_child(self._module, self._environment)
        try:
            self._child.watch(config.engine_hang_s)
            beat_s = min(BEAT_S, config.engine_hang_s / 4)
            reply = await self._child.ask(Boot(config.model_dump_json(), checkpoint, beat_s))
        except BaseException:
            await self.close()
            raise
        assert isinstance(reply, EngineInfo)
        return reply

    async def generate(self, request: GenerateRequest, *, on_late: OnLate | None = None) -> Chunk:
        """Sample to the end. A cancelled caller aborts the generation, and ``on_late`` gets what it had sampled."""
        child = self._running()
        future: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        child.waiters[request.request_id] = future
        child.send(request)
        try:
            return await future
        except asyncio.CancelledError:
            child.give_up(request.request_id, future, on_late or _ignore)
            raise

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Sample token by token; closing the iterator early aborts the generation."""
        child = self._running()
        chunks: asyncio.Queue[Chunk | EngineFailed] = asyncio.Queue()
        child.streams[request.request_id] = chunks
        child.send(request)
        try:
            while True:
                item = await chunks.get()
                if isinstance(item, EngineFailed):
                    raise item
                yield item
                if item.finish is not None:
                    return
        finally:
            if child.streams.pop(request.request_id, None) is not None:
                child.send(Abort(request.request_id))

    def abort(self, request_id: str) -> None:
        """Stop a generation; its waiter gets what was sampled, with ``finish='abort'``."""
        if self._child is not None and self._child.alive:
            self._child.send(Abort(request_id))

    async def train(self, batch: TrainBatch) -> TrainResult:
        """One update. Raises StateError when generations are running in the child."""
        reply = await self._running().ask(batch)
        assert isinstance(reply, TrainResult)
        return reply

    async def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint; returns step, policy_version, fingerprint and path."""
        reply = await self._running().ask(Save(folder))
        assert isinstance(reply, Saved)
        return reply.info

    async def close(self) -> None:
        """End the child: politely, then by SIGKILL after ``CLOSE_WAIT_S``."""
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def died(self) -> str:
        """Wait until the child ends without ``close``; returns how. Never returns when there is no child to watch."""
        if self._child is None:
            return await asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._child.death)

    def _running(self) -> _Child:
        if self._child is None:
            raise EngineFailed("The engine is not running.", hint="Start it first.")
        if not self._child.alive:
            raise EngineFailed(f"The engine {self._child.ending}.", hint=RESTART_HINT)
        return self._child


class _Child(asyncio.Protocol):
    """One child process and its socket; a connection made once and lost once."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.alive = True
        self.ending = "has not ended"
        self.death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.waiters: dict[str, asyncio.Future[Chunk]] = {}
        self.streams: dict[str, asyncio.Queue[Chunk | EngineFailed]] = {}
        self._unclaimed: dict[str, Chunk] = {}
        """Answers to callers that were cancelled in the same turn of the loop; each is fetched by ``give_up``."""
        self._asked: deque[asyncio.Future[ToFront]] = deque()
        self._outbox: list[ToChild] = []
        self._frames = FrameBuffer()
        self._transport: asyncio.WriteTransport | None = None
        self._closing = False
        self._last_words = ""
        self.reads = 0
        """How often something came from the child."""
        self._hung = ""
        self._reaper: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio calls this once; uvloop's is no subclass of asyncio's)."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand every message of the received frames to who waits for it."""
        self.reads += 1
        for body in self._frames.feed(data):
            for message in read_for_front(body):
                self._deliver(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The child hung up: find out how it ended, then fail whoever waits."""
        self.alive = False
        self._reaper = asyncio.get_running_loop().create_task(self._reap())

    def watch(self, hang_s: float) -> None:
        """Kill the child once it has said nothing for ``hang_s``; to whoever waits that is a death like any other."""
        self._watcher = asyncio.get_running_loop().create_task(self._await_silence(hang_s))

    async def _await_silence(self, hang_s: float) -> None:
        silent = 0
        while silent < LOOKS:
            before = self.reads
            await asyncio.sleep(hang_s / LOOKS)
            silent = silent + 1 if self.reads == before else 0
        self._hung = f"said nothing for {hang_s:g} s and was killed"
        logger.warning("The engine (pid %d) %s.", self.process.pid, self._hung)
        self.process.kill()

    def send(self, message: ToChild) -> None:
        """Queue a message; everything queued in one turn of the loop goes out as one frame. Dropped when the child is gone."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def give_up(self, request_id: str, waiter: asyncio.Future[Chunk], on_late: OnLate) -> None:
        """Abort a request whose caller was cancelled; what the child says of it in the end goes to ``on_late``."""
        if not waiter.cancelled():  # it ended in the same turn of the loop
            on_late(None if waiter.exception() else waiter.result())
        elif self.waiters.pop(request_id, None) is None:
            on_late(self._unclaimed.pop(request_id, None))
        else:
            late: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
            late.add_done_callback(
                lambda done: on_late(None if done.exception() else done.result())
            )
            self.waiters[request_id] = late
            self.send(Abort(request_id))

    async def ask(self, message: ToChild) -> ToFront:
        """Send a control message and wait for its answer; the child answers these in order."""
        future: asyncio.Future[ToFront] = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        self.send(message)
        reply = await future
        if isinstance(reply, Failure):
            raise reply.error()
        return reply

    async def end(self) -> None:
        """Close the child and wait for it; returns when the process is reaped."""
        self._closing = True
        if self.alive:
            self.send(Close())
            try:
                await asyncio.wait_for(self.gone.wait(), CLOSE_WAIT_S)
            except TimeoutError:
                self.process.kill()
        await self.gone.wait()

    def _flush(self) -> None:
        messages, self._outbox = self._outbox, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(messages))

    def _deliver(self, message: ToFront) -> None:
        if isinstance(message, Beat):
            return
        if not isinstance(message, Chunk):
            if self._asked:
                _resolve(self._asked.popleft(), message)
            elif isinstance(message, Failure):
                self._last_words = f": {message.message}"
            return
        stream = self.streams.get(message.request_id)
        if stream is not None:
            if message.finish is not None:
                del self.streams[message.request_id]
            stream.put_nowait(message)
        elif message.finish is not None:
            waiter = self.waiters.pop(message.request_id, None)
            if waiter is not None and waiter.cancelled():
                self._unclaimed[message.request_id] = message
            elif waiter is not None:
                _resolve(waiter, message)

    async def _reap(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        code = await asyncio.to_thread(_wait_or_kill, self.process)
        self.ending = self._hung or _describe_exit(code) + self._last_words
        if not self._closing:
            logger.warning("The engine (pid %d) %s.", self.process.pid, self.ending)
            _resolve(self.death, self.ending)
        self._fail_all()
        self.gone.set()

    def _fail_all(self) -> None:
        def failure() -> EngineFailed:
            return EngineFailed(f"The engine {self.ending}.", hint=RESTART_HINT)

        waiting = [*self.waiters.values(), *self._asked]
        self.waiters.clear()
        self._asked.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(failure())
        for stream in self.streams.values():
            stream.put_nowait(failure())
        self.streams.clear()


async def _start_child(module: str, environment: Mapping[str, str]) -> _Child:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        command = [sys.executable, "-m", module, "--fd", str(theirs.fileno())]
        process = await asyncio.to_thread(
            subprocess.Popen,
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
    child = _Child(process)
    await asyncio.get_running_loop().create_connection(lambda: child, sock=ours)
    return child


def _wait_or_kill(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a process whose socket is closed; one that lingers is killed."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(CLOSE_WAIT_S)
    process.kill()
    return process.wait()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _ignore(_chunk: Chunk | None) -> None:
    """Nobody asked for the last words of a cancelled request."""


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    """Set a result, unless the waiter has gone."""
    if not future.done():
        future.set_result(value)
