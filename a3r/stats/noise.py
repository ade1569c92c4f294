"""The noise floor: how far apart two numbers lie when nothing differs but the seed, or nothing at all.

Two sources. Repeats of one cell (same blueprint, other seeds) carry everything that a seed changes. Evaluations of version 0 (the
same weights on the same items) carry the evaluation's own noise only, so they bound the floor from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from a3r.stats.distributions import chi2_quantile, t_quantile
from a3r.stats.intervals import finite, pooled_sd, sample_sd


@dataclass(frozen=True)
class NoiseFloor:
    """A standard deviation with its uncertainty."""

    sd: float
    low: float
    """Two-sided chi-squared interval of the standard deviation, exact for normal noise."""
    high: float
    df: int
    """Degrees of freedom: values minus groups. With two of them ``high`` is more than four times ``sd``."""
    groups: int
    """Groups of at least two values; single values say nothing."""

    def difference(self, n_a: int, n_b: int, confidence: float = 0.95) -> float:
        """Largest difference of two means of ``n_a`` and ``n_b`` values that chance alone explains at that confidence."""
        if n_a < 1 or n_b < 1:
            msg = f"both means need at least one value, got {n_a!r} and {n_b!r}"
            raise ValueError(msg)
        factor = t_quantile(0.5 + confidence / 2, self.df)
        return factor * self.sd * math.sqrt(1 / n_a + 1 / n_b)


def noise_floor(
    groups: Sequence[Sequence[float | None]], confidence: float = 0.95
) -> NoiseFloor | None:
    """Spread within groups of repeats, pooled by degrees of freedom; None when no group has two values.

    Each group holds repeats of one thing: the gains of one cell's seeds, or the version-0 means of runs that started from the same
    weights. Raises ValueError on a missing or infinite value.
    """
    repeated = [finite(group) for group in groups if len(group) >= 2]
    if not repeated:
        return None
    sd = pooled_sd(repeated)
    df = sum(len(group) - 1 for group in repeated)
    tail = (1 - confidence) / 2
    return NoiseFloor(
        sd=sd,
        low=sd * math.sqrt(df / chi2_quantile(1 - tail, df)),
        high=sd * math.sqrt(df / chi2_quantile(tail, df)),
        df=df,
        groups=len(repeated),
    )


def robust_sd(groups: Sequence[Sequence[float | None]]) -> tuple[float, float] | None:
    """(standard deviation, effective degrees of freedom) within groups that a minority of wild groups can not move.

    The weighted median, over groups of at least two values, of each variance divided by the median of chi-squared over its
    degrees of freedom. A median uses about four tenths of what a mean uses, hence 0.4 of the degrees of freedom. None when no group
    has two values.
    """
    found: list[tuple[float, int]] = []
    for group in groups:
        sd, df = sample_sd(group), len(group) - 1
        if sd is not None:
            found.append((sd * sd * df / chi2_quantile(0.5, df), df))
    if not found:
        return None
    total = sum(df for _, df in found)
    return math.sqrt(_weighted_median(found)), max(1.0, 0.4 * total)


def _weighted_median(pairs: list[tuple[float, int]]) -> float:
    half, running = sum(weight for _, weight in pairs) / 2, 0
    ordered = sorted(pairs)
    for position, (value, weight) in enumerate(ordered):
        running += weight
        if running == half and position + 1 < len(ordered):
            return (value + ordered[position + 1][0]) / 2
        if running >= half:
            return value
    return ordered[-1][0]


def binomial_sd(share: float, items: int) -> float:
    """Standard deviation of the mean of ``items`` yes-or-no rewards with that share of yes: sqrt(p (1 - p) / items).

    What an evaluation of fixed weights shows when every answer is drawn afresh; less when answers repeat (temperature 0).
    """
    if items < 1 or not 0 <= share <= 1:
        msg = f"share must be within 0..1 and items at least 1, got {share!r} and {items!r}"
        raise ValueError(msg)
    return math.sqrt(share * (1 - share) / items)


def training_sd(gain_sd: float, evaluation_sd: float) -> float:
    """The part of a gain's spread that is not the noise of its two evaluations; 0 when they explain all of it."""
    return math.sqrt(max(0.0, gain_sd**2 - 2 * evaluation_sd**2))
