"""A counter of committed writes that others can wait on: how a long poll wakes up at once."""

from __future__ import annotations

import threading


class Changes:
    """Counts the writes of this process; thread-safe. A wake-up says *look again*, not what changed."""

    def __init__(self) -> None:
        self._count = 0
        self._condition = threading.Condition()

    @property
    def count(self) -> int:
        """Writes so far. Take it before looking, then ``wait`` on it: no change in between is missed."""
        with self._condition:
            return self._count

    def notify(self) -> None:
        """Count one write and wake everyone who waits."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, after: int, timeout_s: float) -> int:
        """Return the count as soon as it is greater than ``after``, else (unchanged) at the time-out."""
        with self._condition:
            self._condition.wait_for(lambda: self._count > after, timeout_s)
            return self._count
