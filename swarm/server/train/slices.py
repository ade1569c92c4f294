"""Work that can be interrupted: a generator that yields between its pieces, and a watch that does not count the breaks."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")
Slices = Generator[None, None, ResultT]
"""Work in pieces: it may be left alone for any time between two of them."""


def finish(work: Slices[ResultT]) -> ResultT:
    """Do all of the pieces at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


class Stopwatch:
    """CPU seconds of this process while it runs; it stands still during ``pause``."""

    def __init__(self) -> None:
        self._total = 0.0
        self._began = time.process_time()

    def pause(self) -> Slices[None]:
        """Yield once, not counting what is done meanwhile."""
        self._total += time.process_time() - self._began
        yield
        self._began = time.process_time()

    def read(self) -> float:
        """Seconds so far; call it while the watch runs."""
        return self._total + time.process_time() - self._began
