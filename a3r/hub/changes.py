"""Wakes long polls. ``notify`` may be called from any thread; ``wait`` from any event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Changes:
    """A counter that grows with every change. A waiter names the count it has seen, so no change is missed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def count(self) -> int:
        """Number of changes so far: read it *before* looking at the data."""
        return self._count

    @property
    def closed(self) -> bool:
        """True when the hub is shutting down: nobody should wait any more."""
        return self._closed

    def notify(self) -> None:
        """Something changed: every waiter looks again."""
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            # The loop may be closed already when its server has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let every waiter go, now and in future."""
        self._closed = True
        self.notify()

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Return at the next change after ``seen``, at once if there was one, or after ``timeout_s``."""
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        with self._lock:
            if self._count != seen or self._closed or timeout_s <= 0:
                return
            self._waiting.add(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard(entry)
