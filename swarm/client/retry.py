"""When to try again and for how long: pure decisions, no clock of its own beyond the one that is passed in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from swarm.protocol.errors import JournalFailed, QueueFull, SwarmError

RETRYABLE_STATUS = frozenset({429, 502, 503})
"""Answers after which the same request may succeed: a full queue, a proxy without a server, an engine that boots."""
FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 2.0


def may_repeat(status: int, error: SwarmError, *, repeatable: bool) -> bool:
    """Whether a refused request may be sent again: ``repeatable`` ones also when the server's journal failed (nothing was recorded)."""
    if status == QueueFull.status:
        return True
    return repeatable and (status in RETRYABLE_STATUS or isinstance(error, JournalFailed))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds of a ``Retry-After`` header; None when absent or not a number (an HTTP date is not honoured)."""
    raw = headers.get("Retry-After") or headers.get("retry-after")
    try:
        return max(0.0, float(raw)) if raw is not None else None
    except ValueError:
        return None


class Backoff:
    """Delays between the tries of one call, bounded by one deadline.

    Delays double from ``FIRST_DELAY_S`` to ``LONGEST_DELAY_S``, each times a random factor in [0.5, 1], so that many
    clients of one restarted server do not come back at the same moment.
    """

    def __init__(
        self,
        deadline_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Start counting now; ``deadline_s`` seconds are left for all tries together."""
        self._clock = clock
        self._rng = rng
        self._started = clock()
        self._ends = self._started + deadline_s
        self.tries = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first try began."""
        return self._clock() - self._started

    @property
    def left_s(self) -> float:
        """Seconds left until the deadline, never negative."""
        return max(0.0, self._ends - self._clock())

    def next_delay(self, retry_after: float | None = None) -> float | None:
        """Seconds to sleep before the next try, at least ``retry_after``; None when the deadline would pass first."""
        if self._rng is None:  # most calls never need one, and seeding costs more than the rest
            self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2**self.tries) * self._rng.uniform(0.5, 1.0)
        self.tries += 1
        delay = max(delay, retry_after or 0.0)
        return delay if delay < self.left_s else None
