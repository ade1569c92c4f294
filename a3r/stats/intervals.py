"""Intervals at small n: Student's t for a mean, Welch's for a difference, Wilson's for a share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from a3r.stats.distributions import normal_quantile, t_quantile, t_tail


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided interval; ``low``, ``high`` and ``sd`` are None when n < 2 (nothing can be said)."""

    low: float | None
    mean: float
    high: float | None
    n: int
    sd: float | None
    """Sample standard deviation (n - 1)."""


def finite(values: Sequence[float | None], what: str = "values") -> list[float]:
    """Return the values as floats; ValueError on None, NaN or infinity, because a missing number is not 0."""
    out: list[float] = []
    for position, value in enumerate(values):
        if value is None or not math.isfinite(value):
            msg = f"{what}[{position}] is {value!r}: missing numbers must be excluded and counted, not averaged"
            raise ValueError(msg)
        out.append(float(value))
    return out


def mean(values: Sequence[float | None]) -> float:
    """Arithmetic mean by exact summation, so the order of values does not matter; ValueError when empty."""
    numbers = finite(values)
    if not numbers:
        msg = "the mean of no values is not defined"
        raise ValueError(msg)
    return math.fsum(numbers) / len(numbers)


def sample_sd(values: Sequence[float | None]) -> float | None:
    """Standard deviation with n - 1; None when n < 2."""
    numbers = finite(values)
    if len(numbers) < 2:
        return None
    centre = mean(numbers)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in numbers) / (len(numbers) - 1))


def mean_interval(values: Sequence[float | None], confidence: float = 0.95) -> Interval:
    """Return the two-sided t interval of the mean. ValueError when empty, missing or not finite."""
    _check_confidence(confidence)
    centre, sd, n = mean(values), sample_sd(values), len(values)
    if sd is None:
        return Interval(None, centre, None, n, None)
    half = t_quantile(0.5 + confidence / 2, n - 1) * sd / math.sqrt(n)
    return Interval(centre - half, centre, centre + half, n, sd)


@dataclass(frozen=True)
class Difference:
    """mean(a) - mean(b) with Welch's interval; bounds and p are None when a sample has n < 2.

    Without any spread in both samples the bounds are None and p is 1, as in the tests of ``a3r.stats.tests``.
    """

    low: float | None
    difference: float
    high: float | None
    p_two_sided: float | None
    df: float | None
    n_a: int
    n_b: int


def welch_difference(
    a: Sequence[float | None], b: Sequence[float | None], confidence: float = 0.95
) -> Difference:
    """Welch's t: unequal variances, Welch-Satterthwaite degrees of freedom (Welch 1947)."""
    _check_confidence(confidence)
    difference = mean(a) - mean(b)
    sd_a, sd_b = sample_sd(a), sample_sd(b)
    n_a, n_b = len(a), len(b)
    if sd_a is None or sd_b is None:
        return Difference(None, difference, None, None, None, n_a, n_b)
    va, vb = sd_a**2 / n_a, sd_b**2 / n_b
    if (
        va + vb == 0.0
    ):  # nothing to measure the distance with: no interval, and p is 1 whatever the distance
        return Difference(None, difference, None, 1.0, None, n_a, n_b)
    df = (va + vb) ** 2 / (va**2 / (n_a - 1) + vb**2 / (n_b - 1))
    error = math.sqrt(va + vb)
    half = t_quantile(0.5 + confidence / 2, df) * error
    p = 2 * t_tail(abs(difference) / error, df)
    return Difference(difference - half, difference, difference + half, p, df, n_a, n_b)


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a share (Wilson 1927); ValueError for n < 1 or successes outside 0..n."""
    _check_confidence(confidence)
    if n < 1 or not 0 <= successes <= n:
        msg = f"successes must be within 0..n and n at least 1, got {successes!r} of {n!r}"
        raise ValueError(msg)
    z = normal_quantile(0.5 + confidence / 2)
    share = successes / n
    scale = 1 + z**2 / n
    centre = (share + z**2 / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        msg = f"confidence must be between 0 and 1, got {confidence!r}"
        raise ValueError(msg)


def pooled_sd(samples: Sequence[Sequence[float | None]]) -> float:
    """Pooled within-sample standard deviation; samples with n < 2 add nothing; ValueError when none has n >= 2."""
    squares, df = 0.0, 0
    for sample in samples:
        sd = sample_sd(sample)
        if sd is not None:
            squares += sd**2 * (len(sample) - 1)
            df += len(sample) - 1
    if df == 0:
        msg = "no sample has two values"
        raise ValueError(msg)
    return math.sqrt(squares / df)
