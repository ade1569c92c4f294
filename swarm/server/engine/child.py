"""The engine's process: ``python -m swarm.server.engine.child --fd N``, started by ``host`` with an inherited socket.

A thread reads frames into a queue; the main thread alternates between the queue, sampling and the pieces of an update that
overlaps it, and sends what came of a turn as one frame; with nothing to say for a while it beats. When the socket closes the process ends at once, also in the middle of an update: it never outlives
the front, and the journal makes up for what is lost.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, SwarmError
from swarm.server.engine.turns import SharedUpdate, beating
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
    read_for_child,
)
from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest, TrainBatch, TrainResult
from swarm.server.train.slices import Slices
from swarm.triggers import ENVIRONMENT, Point, arm, hit

if TYPE_CHECKING:
    from swarm.server.engine.torch_engine import TorchEngine

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 18
LINGER_S = 0.003
"""How long a tick waits for company: it costs almost the same for one row as for ten."""
FEW = 0.4
"""It waits below this share of the recent peak of requests."""
PEAK_FADE = 0.995
"""What is left of that peak after each tick."""
Inbox = queue.SimpleQueue[ToChild]


class ChildLoop:
    """Serves one engine until Close. ``send`` writes one frame to the front."""

    def __init__(
        self,
        inbox: Inbox,
        send: Callable[[list[ToFront]], None],
        boot: Callable[[Boot], TorchEngine] | None = None,
    ) -> None:
        """``boot`` makes the engine; the default is the torch engine of the config."""
        self._inbox = inbox
        self._send = send
        self._boot = boot or _boot
        self._engine: TorchEngine | None = None
        self._closed = False
        self._peak = 0.0
        self._update: SharedUpdate | None = None
        self._deferred: deque[ToChild] = deque()
        """Control messages that came during an update which overlaps: answers keep the order of the questions."""
        self._beat_s = 1.0
        self._told = 0.0

    def run(self) -> None:
        """Handle messages, sample and train, until a Close arrives."""
        while not self._closed:
            out: list[ToFront] = []
            came = self._drain(0.0 if self._working else self._beat_s)
            for message in came:
                out += self._handle(message)
            if came and self._update is None:
                out += self._linger()
            if not self._closed:
                out += self._work()
            if out:
                self._tell(out)
            else:
                self._beat()

    @property
    def _working(self) -> bool:
        return self._update is not None or (self._engine is not None and self._engine.busy)

    def _work(self) -> list[ToFront]:
        """A piece of the update when it is its turn, else one token of everything that samples."""
        if self._engine is None:
            return []
        busy = self._engine.busy
        if self._update is not None and self._update.is_due(busy=busy):
            return self._guarded(self._advance, "update")
        if not busy:
            return []
        self._peak = max(self._engine.load, self._peak * PEAK_FADE)
        hit(Point.ENGINE_TICK)
        return list(self._engine.tick())

    def _advance(self) -> list[ToFront]:
        update, self._update = self._update, None  # one that fails is over
        assert update is not None
        result = update.advance()
        if result is None:
            self._update = update
            return []
        hit(Point.ENGINE_TRAINED)
        return [result]

    def _tell(self, out: list[ToFront]) -> None:
        self._send(out)
        self._told = time.monotonic()

    def _beat(self) -> None:
        """Let the front hear something, when it has not for a while."""
        if time.monotonic() - self._told >= self._beat_s:
            self._tell([Beat()])

    def _linger(self) -> list[ToFront]:
        """Requests are coming in: when few run, wait a moment for the rest instead of sampling for these few alone."""
        out: list[ToFront] = []
        until = time.monotonic() + LINGER_S
        while not out and self._engine is not None and 0 < self._engine.load < FEW * self._peak:
            left = until - time.monotonic()
            came = self._drain(left) if left > 0 else []
            if not came:
                break
            for message in came:
                out += self._handle(message)
        return out

    def _drain(self, wait_s: float | None) -> list[ToChild]:
        """Everything that has arrived; the first message is waited for up to ``wait_s`` (None = for ever)."""
        messages: list[ToChild] = []
        try:
            messages.append(
                self._inbox.get_nowait() if wait_s == 0 else self._inbox.get(timeout=wait_s)
            )
            while True:
                messages.append(self._inbox.get_nowait())
        except queue.Empty:
            return messages

    def _handle(self, message: ToChild) -> list[ToFront]:
        """Answer one message, at once or when the update before it is over."""
        if self._update is not None and isinstance(message, Save | TrainBatch):
            self._deferred.append(message)
            return []
        return self._guarded(lambda: self._dispatch(message), type(message).__name__)

    def _guarded(self, action: Callable[[], list[ToFront]], what: str) -> list[ToFront]:
        """What ``action`` answers; a failing control message is answered by a Failure and the process lives on."""
        out: list[ToFront] = []
        try:
            out = action()
        except SwarmError as error:
            out = [Failure.of(error)]  # expected: the front says it to whoever asked
        except Exception as error:
            logger.exception("The engine could not handle: %s.", what)
            out = [Failure.of(error)]
        while self._deferred and self._update is None:
            out += self._handle(self._deferred.popleft())
        return out

    def _dispatch(self, message: ToChild) -> list[ToFront]:
        if isinstance(message, Close):
            self._closed = True
            return []
        if isinstance(message, Boot):
            self._beat_s = message.beat_s
            hit(Point.ENGINE_BOOTING)
            with beating(self._beat, self._beat_s):
                self._engine = self._boot(message)
            hit(Point.ENGINE_BOOTED)
            return [self._engine.info()]
        if self._engine is None:
            raise ConfigError("The engine has not booted.", hint="Send a Boot message first.")
        if isinstance(message, GenerateRequest):
            self._engine.submit(message)
            hit(Point.ENGINE_SUBMITTED)
            return []
        if isinstance(message, Abort):
            return list(self._engine.abort(message.request_id))
        if isinstance(message, Save):
            hit(Point.ENGINE_BEFORE_SAVE)
            with beating(self._beat, self._beat_s):
                saved = self._engine.save(message.folder)
            hit(Point.ENGINE_SAVED)
            return [Saved(saved)]
        assert isinstance(message, TrainBatch)
        hit(Point.ENGINE_BEFORE_TRAIN)
        pieces = self._engine.update(message)
        if message.overlapped:
            self._update = SharedUpdate(pieces)
            return []
        trained = self._all_of(pieces)
        hit(Point.ENGINE_TRAINED)
        return [trained]

    def _all_of(self, pieces: Slices[TrainResult]) -> TrainResult:
        """Train without a break; requests that come meanwhile wait."""
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value
            self._beat()


def _boot(message: Boot) -> TorchEngine:
    config = TrainConfig.model_validate_json(message.config_json)
    if message.checkpoint is None:
        resolve_model(config.model.path)  # a misspelt path fails before the slow import
    try:
        import torch

        from swarm.server.engine.torch_engine import TorchEngine
    except ImportError as error:
        raise ConfigError(
            f"The torch engine cannot start: {error}.",
            hint="Install it with: pip install 'a3r[train]'",
        ) from error
    # Two threads under a second busy process are many times slower than one; denormals likewise.
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return TorchEngine(config, checkpoint=message.checkpoint)


def _read_frames(connection: socket.socket, inbox: Inbox) -> None:
    """Fill the inbox until the front hangs up, then end the whole process."""
    frames = FrameBuffer()
    while True:
        try:
            data = connection.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        for body in frames.feed(data):
            for message in read_for_child(body):
                inbox.put(message)


def main(boot: Callable[[Boot], TorchEngine] | None = None) -> None:
    """Serve the socket given by ``--fd``; ``boot`` as for ``ChildLoop``."""
    arm(os.environ.get(ENVIRONMENT, ""))
    parser = argparse.ArgumentParser(description="The engine's process; started by the server.")
    parser.add_argument("--fd", type=int, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    connection = socket.socket(fileno=arguments.fd)
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_read_frames, args=(connection, inbox), daemon=True).start()
    # os._exit: the reader thread blocks in recv and would hold up an ordinary exit.
    os._exit(_serve(connection, inbox, boot))


def _serve(
    connection: socket.socket, inbox: Inbox, boot: Callable[[Boot], TorchEngine] | None
) -> int:
    """Run the loop to its end; returns the exit code. A crash is told to the front before the process goes."""
    try:
        ChildLoop(inbox, lambda messages: connection.sendall(pack(messages)), boot).run()
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the front has gone
    except Exception as error:
        logger.exception("The engine crashed.")
        with suppress(OSError):
            connection.sendall(pack([Failure.of(error)]))
        return 1
    return 0


if __name__ == "__main__":
    main()
