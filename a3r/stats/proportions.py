"""Shares of few trials: exact intervals, the difference of two, and Fisher's test. Wilson's interval is in ``intervals``."""

from __future__ import annotations

import math

from a3r.stats.distributions import beta_quantile
from a3r.stats.intervals import wilson_interval


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share (Clopper and Pearson 1934): never covers less than ``confidence``, often more.

    ValueError for n < 1 or successes outside 0..n.
    """
    _check(successes, n)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, n - successes + 1)
    high = 1.0 if successes == n else beta_quantile(1 - tail, successes + 1, n - successes)
    return low, high


def newcombe_difference(
    a: tuple[int, int], b: tuple[int, int], confidence: float = 0.95
) -> tuple[float, float, float]:
    """(low, difference, high) of share a minus share b, each as (successes, n): Newcombe 1998, method 10, from Wilson's intervals."""
    share_a, share_b = a[0] / max(a[1], 1), b[0] / max(b[1], 1)
    low_a, high_a = wilson_interval(*a, confidence)
    low_b, high_b = wilson_interval(*b, confidence)
    difference = share_a - share_b
    low = difference - math.hypot(share_a - low_a, high_b - share_b)
    high = difference + math.hypot(high_a - share_a, share_b - low_b)
    return low, difference, high


def fisher_greater(a: tuple[int, int], b: tuple[int, int]) -> float:
    """One-sided exact p of "share a is greater than share b", each as (successes, n): Fisher 1935, hypergeometric tail."""
    _check(*a)
    _check(*b)
    successes, total = a[0] + b[0], a[1] + b[1]
    ways = math.comb(total, successes)
    most = min(successes, a[1])
    tail = sum(math.comb(a[1], k) * math.comb(b[1], successes - k) for k in range(a[0], most + 1))
    return min(1.0, tail / ways)


def _check(successes: int, n: int) -> None:
    if n < 1 or not 0 <= successes <= n:
        msg = f"successes must be within 0..n and n at least 1, got {successes!r} of {n!r}"
        raise ValueError(msg)
