"""How one thread both samples and trains, and how the front can tell a slow engine from a hung one.

Two threads were tried and were slower (``docs/decisions``): pieces of an update between ticks also keep the order of all
arithmetic, and so its bits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from swarm.server.ports import TrainResult
from swarm.server.train.slices import Slices


class SharedUpdate:
    """An update that takes turns with sampling: after each piece, sampling has as much time as the piece took."""

    def __init__(self, pieces: Slices[TrainResult]) -> None:
        self._pieces = pieces
        self._next_at = 0.0

    def is_due(self, *, busy: bool) -> bool:
        """Whether it is the update's turn; always so when there is nothing to sample."""
        return not busy or time.monotonic() >= self._next_at

    def advance(self) -> TrainResult | None:
        """Do one piece; the result when it was the last."""
        began = time.monotonic()
        try:
            next(self._pieces)
        except StopIteration as end:
            return end.value
        now = time.monotonic()
        self._next_at = now + (now - began)
        return None


@contextmanager
def beating(beat: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``beat`` from a thread while the block is busy with one long call (loading, saving).

    A process that is stopped falls silent all the same. Nothing else may use what ``beat`` uses meanwhile.
    """
    done = threading.Event()

    def run() -> None:
        while not done.wait(every_s):
            beat()

    thread = threading.Thread(target=run, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
