"""Answers that repeat themselves: a run of tokens that says one piece again and again. Linear in the answer's length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

WINDOW = 4
"""Tokens whose earlier occurrence tells how long the repeated piece may be."""
CANDIDATES = 4
"""Lengths that are looked at, the most frequent ones."""


class Loop(NamedTuple):
    """The longest repetition of an answer."""

    period: int
    """Tokens of the repeated piece; 0 = nothing repeats."""
    tokens: int
    """Tokens that the repetition covers, the first saying included."""


def longest_loop(ids: Sequence[int], least_repeats: int = 2) -> Loop:
    """Return the longest run that says one piece at least ``least_repeats`` times in a row; ``Loop(0, 0)`` when there is none."""
    best = Loop(0, 0)
    for period in _periods(ids):
        covered = _longest_run(ids, period)
        if covered >= least_repeats * period and covered > best.tokens:
            best = Loop(period, covered)
    return best


def _periods(ids: Sequence[int]) -> list[int]:
    """Distances between equal windows, the most frequent ones, short before long."""
    seen: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for end in range(WINDOW, len(ids) + 1):
        window = tuple(ids[end - WINDOW : end])
        if window in seen:
            distances[end - seen[window]] += 1
        seen[window] = end
    return sorted(period for period, _ in distances.most_common(CANDIDATES))


def _longest_run(ids: Sequence[int], period: int) -> int:
    """Tokens of the longest run in which every token is the one ``period`` before it."""
    best = run = 0
    for at in range(period, len(ids)):
        run = run + 1 if ids[at] == ids[at - period] else 0
        best = max(best, run)
    return best + period if best else 0
