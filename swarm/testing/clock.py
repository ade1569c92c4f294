"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call; safe twice."""
        self._callback = None

    def fire(self) -> None:
        """Call unless cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """Implements ``swarm.server.service.clock.Clock``; starts at ``start`` unix seconds and stands still."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        """Return unix seconds."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return seconds since the clock was made."""
        return self._elapsed

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Timer:
        """Call ``callback`` when ``advance`` passes ``delay_s`` from now."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._elapsed + delay_s, next(self._order), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Move by ``seconds``: due timers fire in order, and tasks get to run after each of them."""
        goal = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= goal:
            at, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, at)
            timer.fire()
            await settle()
        self._elapsed = goal
        await settle()


async def settle(rounds: int = 5) -> None:
    """Let ready tasks run a few rounds."""
    for _ in range(rounds):
        await asyncio.sleep(0)
