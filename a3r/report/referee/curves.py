"""Small summaries of a step series. Missing values are left out before, never taken for 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, pstdev
from typing import NamedTuple

SHORTEST = 6
"""Values below which a series has no beginning and end to compare."""


class Ends(NamedTuple):
    """First and last third of a series."""

    early: float
    late: float

    @property
    def ratio(self) -> float:
        """Late over early; infinite when it began at 0 and did not stay there, 1 when both are 0."""
        if self.early:
            return self.late / self.early
        return math.inf if self.late else 1.0


def ends(values: Sequence[float]) -> Ends | None:
    """Medians of the first and the last third; None for fewer than ``SHORTEST`` values."""
    if len(values) < SHORTEST:
        return None
    third = len(values) // 3
    return Ends(median(values[:third]), median(values[-third:]))


class Change(NamedTuple):
    """How far the mean of a series moved from its first to its last third."""

    rise: float
    error: float
    """Standard error of ``rise`` from the spread inside the thirds."""

    def clear(self, errors: float) -> bool:
        """Whether it rose by more than so many standard errors."""
        return self.rise > errors * self.error


def change(values: Sequence[float]) -> Change | None:
    """Difference of the means of the last and the first third; None for fewer than ``SHORTEST`` values."""
    if len(values) < SHORTEST:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    spread = math.hypot(pstdev(first), pstdev(last)) / math.sqrt(max(third - 1, 1))
    return Change(fmean(last) - fmean(first), spread)


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Means of ``width`` neighbours that lie wholly inside; empty when there are fewer values than that."""
    return [fmean(values[i : i + width]) for i in range(len(values) - width + 1)]
