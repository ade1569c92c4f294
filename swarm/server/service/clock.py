"""Time as an injected dependency: the service never calls ``time`` or ``asyncio.sleep`` itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """What ``Clock.call_later`` returns."""

    def cancel(self) -> None:
        """Do not call; safe after the call and twice."""
        ...


class Clock(Protocol):
    """Wall time, monotonic time and timers of one event loop."""

    def time(self) -> float:
        """Return unix seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going back."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call ``callback`` once from the event loop after ``delay_s``."""
        ...


class SystemClock:
    """The machine's clocks and the running loop's timers."""

    def time(self) -> float:
        """Return unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Schedule on the running loop."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


class Bell:
    """Wakes everyone who waits for "something changed"; waiters look again and may wait again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        """Return how many wait now."""
        return len(self._waiting)

    def ring(self) -> None:
        """Wake all current waiters, in the order in which they came."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return at the next ring, or after ``timeout_s`` (None = no limit); the caller checks what it waits for."""
        if timeout_s is not None and timeout_s <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        timer = None
        if timeout_s is not None:
            timer = self._clock.call_later(timeout_s, lambda: _set(future))
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if future in self._waiting:
                self._waiting.remove(future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait ``seconds`` of ``clock``."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: _set(future))
    try:
        await future
    finally:
        timer.cancel()
