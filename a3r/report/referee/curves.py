"""Small summaries of a step series. Missing values are left out before, never taken for 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

SHORTEST = 6
"""Values below which a series has no beginning and end to compare."""


class Ends(NamedTuple):
    """How a series began and how it ended."""

    early: float
    late: float

    @property
    def ratio(self) -> float:
        """Late over early; infinite when it began at 0 and did not stay there, 1 when both are 0."""
        if self.early:
            return self.late / self.early
        return math.inf if self.late else 1.0


def ends(values: Sequence[float]) -> Ends | None:
    """Medians of the first tenth (at least 3 values) and the last third; None for fewer than ``SHORTEST`` values.

    The beginning is short because most of what happens in training happens early.
    """
    if len(values) < SHORTEST:
        return None
    return Ends(median(values[: max(len(values) // 10, 3)]), median(values[-(len(values) // 3) :]))


class Change(NamedTuple):
    """How far the mean of a series moved from its beginning to its end."""

    rise: float
    error: float
    """Standard error of ``rise``, from the scatter of single values around their neighbours."""

    def clear(self, errors: float) -> bool:
        """Whether it rose by more than so many standard errors."""
        return self.rise > errors * self.error


def change(values: Sequence[float]) -> Change | None:
    """Mean of the last third minus that of the first sixth (at least 3 values); None for fewer than ``SHORTEST`` values."""
    if len(values) < SHORTEST:
        return None
    first, last = values[: max(len(values) // 6, 3)], values[-(len(values) // 3) :]
    error = scatter(values) * (1 / len(first) + 1 / len(last)) ** 0.5
    return Change(fmean(last) - fmean(first), error)


def scatter(values: Sequence[float]) -> float:
    """Standard deviation of one value around its neighbours: from successive differences, so that a trend does not count.

    Von Neumann's estimate (1941): half the mean squared difference. 0 for fewer than two values.
    """
    squares = [(b - a) ** 2 for a, b in pairwise(values)]
    return (fmean(squares) / 2) ** 0.5 if squares else 0.0


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Means of ``width`` neighbours that lie wholly inside; empty when there are fewer values than that."""
    return [fmean(values[i : i + width]) for i in range(len(values) - width + 1)]
