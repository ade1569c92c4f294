"""What passed through the server since its process began: tokens and their rate, calls, episodes, and what steps booked.

Counters only grow (Prometheus reads them); a restart of the process begins at zero, as scrapers expect. Decides nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from enum import StrEnum

from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.service.clock import Clock

RATE_WINDOW_S = 10
"""``per_second`` is the mean over this many seconds."""
CALL_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of call durations; one more bucket takes what is longer."""


class CallOutcome(StrEnum):
    """How a call of an agent ended."""

    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """Its caller left, its episode ended first, or the engine failed for good."""


class Traffic:
    """Totals of one server process, and the rate of sampled tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._recent: deque[tuple[int, int]] = deque()
        """(whole second, tokens sampled in it), oldest first; never more than the window."""
        self.sampled_tokens = 0
        self.calls: Counter[CallOutcome] = Counter()
        self.episodes: Counter[tuple[EpisodeKind, EpisodeState]] = Counter()
        """Ended ones."""
        self.booked_tokens: Counter[str] = Counter()
        """Fate as in ``StepMetrics.tokens`` -> tokens, of completed steps."""
        self.divergences = 0
        """Of completed steps."""
        self.call_seconds = [0] * (len(CALL_BOUNDS_S) + 1)
        """Answered calls by duration, not cumulative; held time is part of it."""
        self.call_seconds_sum = 0.0

    def sampled(self, tokens: int) -> None:
        """Count tokens as they come from the engine."""
        if tokens <= 0:
            return
        self.sampled_tokens += tokens
        second = math.floor(self._clock.monotonic())
        if self._recent and self._recent[-1][0] == second:
            tokens += self._recent.pop()[1]
        self._recent.append((second, tokens))
        self._forget(second)

    def per_second(self) -> float:
        """Return the sampled tokens a second over the last ten seconds, or over the process's life while that is shorter."""
        now = self._clock.monotonic()
        self._forget(math.floor(now))
        span = min(float(RATE_WINDOW_S), max(1.0, now - self._began))
        return sum(tokens for _, tokens in self._recent) / span

    def call(self, outcome: CallOutcome, seconds: float) -> None:
        """Count a call that is over; ``seconds`` from its arrival to its answer."""
        self.calls[outcome] += 1
        if outcome is CallOutcome.ANSWERED:
            self.call_seconds[bisect_left(CALL_BOUNDS_S, seconds)] += 1
            self.call_seconds_sum += seconds

    def episode(self, kind: EpisodeKind, state: EpisodeState) -> None:
        """Count an episode that ended."""
        self.episodes[kind, state] += 1

    def step(self, tokens: Mapping[str, int], divergences: int) -> None:
        """Count what a completed step booked."""
        self.booked_tokens.update(tokens)
        self.divergences += divergences

    def _forget(self, second: int) -> None:
        while self._recent and self._recent[0][0] <= second - RATE_WINDOW_S:
            self._recent.popleft()
