"""The leader's tick: every half second when something changed, at least every few seconds, one at a time.

A tick that fails is told once and tried again, ever more slowly: one broken campaign must not flood the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.background import (  # pyright: ignore[reportMissingTypeStubs]
    BackgroundScheduler,
)

from a3r.core.ports import Clock

logger = logging.getLogger(__name__)

TICK_S = 0.5
IDLE_TICK_S = 3.0
"""A tick looks at least this often though nothing was written: time itself is an input (deadlines, budgets)."""
MAX_BACKOFF_S = 30.0
REST = 3.0
"""After a look it rests for so many times as long as that took: a stage of thousands of runs must not take the hub's time."""


class Ticker:
    """Calls ``work`` on a schedule. ``work`` returns True when it changed something (it is then called again soon)."""

    def __init__(
        self,
        work: Callable[[], bool],
        writes: Callable[[], int],
        clock: Clock,
        tick_s: float = TICK_S,
    ) -> None:
        """``writes`` is a number that moves with every write of interest; ``tick_s`` is how often it looks."""
        self._tick_s = tick_s
        self._work = work
        self._writes = writes
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = -1
        self._due = self._rested = 0.0
        self._failures = 0
        self._last_error = ""
        self._ticks = 0
        self._last_at: float | None = None
        self._scheduler: Any = BackgroundScheduler(timezone=UTC)

    def start(self) -> None:
        """Begin."""
        self.also(self.tick, self._tick_s)
        self._scheduler.start()

    def also(self, work: Callable[[], object], every_s: float = 1.0) -> None:
        """Call ``work`` too, every ``every_s`` seconds, never twice at once."""
        self._scheduler.add_job(
            work,
            "interval",
            seconds=every_s,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            next_run_time=datetime.now(UTC),
        )

    def stop(self) -> None:
        """Let a running tick end, then end."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def report(self) -> dict[str, Any]:
        """How it is doing."""
        return {
            "ticks": self._ticks,
            "last_tick_at": self._last_at,
            "failures_in_a_row": self._failures,
            "last_error": self._last_error or None,
        }

    def tick(self) -> None:
        """One look, if there is a reason for it. Never raises."""
        with self._lock:
            now = self._clock.monotonic()
            try:
                if not self._has_reason(now):
                    return
                again = self._work()
            except Exception as error:  # noqa: BLE001 - the daemon outlives any defect of one campaign
                self._failed(error, now)
                return
            if self._failures:
                logger.info("The leader's tick works again after %d failures.", self._failures)
            self._failures, self._last_error = 0, ""
            self._ticks += 1
            self._last_at = self._clock.time()
            self._due = now if again else now + IDLE_TICK_S
            ended = self._clock.monotonic()
            self._rested = ended + REST * (ended - now)

    def _has_reason(self, now: float) -> bool:
        if now < self._rested or (now < self._due and self._failures):
            return False
        writes = self._writes()
        if now < self._due and writes == self._seen:
            return False
        # Read before the work: a write that arrives meanwhile leads to another tick.
        self._seen = writes
        return True

    def _failed(self, error: Exception, now: float) -> None:
        self._failures += 1
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            logger.error("The leader's tick failed; it will be tried again.", exc_info=error)
        self._last_error = text
        self._due = now + min(MAX_BACKOFF_S, self._tick_s * 2**self._failures)
