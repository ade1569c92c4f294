"""One-sample t tests, corrections for many tests, equivalence, and what a design can reach at best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from a3r.stats.distributions import t_quantile, t_tail
from a3r.stats.intervals import finite, mean, mean_interval, sample_sd


def t_test_greater(values: Sequence[float | None], mu0: float) -> float | None:
    """One-sided p of "the mean is greater than ``mu0``"; None when n < 2.

    Without any spread the answer is 1: the test has nothing to measure the distance with, and a few equal values come from a
    coarse metric more often than from certainty.
    """
    centre, sd, n = mean(values), sample_sd(values), len(values)
    if sd is None:
        return None
    if sd == 0.0:
        return 1.0
    return t_tail((centre - mu0) / (sd / math.sqrt(n)), n - 1)


def t_test_less(values: Sequence[float | None], mu0: float) -> float | None:
    """One-sided p of "the mean is less than ``mu0``"; None when n < 2."""
    return t_test_greater([-x for x in finite(values)], -mu0)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Holm 1979), in the order given; family-wise error, any dependence."""
    _check_ps(ps)
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = running
    return adjusted


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p-values (1995), in the order given; false discovery rate."""
    _check_ps(ps)
    order = sorted(range(len(ps)), key=lambda i: ps[i], reverse=True)
    adjusted, running = [0.0] * len(ps), 1.0
    for rank, index in enumerate(order):
        running = min(running, ps[index] * (len(ps) / (len(ps) - rank)))
        adjusted[index] = running
    return adjusted


def permutation_attainable_p(n_a: int, n_b: int, *, two_sided: bool = False) -> float:
    """Smallest p that a permutation test of these group sizes can ever reach: 1 / C(n_a + n_b, n_a), twice that if two-sided.

    With 3 against 3 that is 0.05 one-sided: no correction for a second test can be survived.
    """
    if n_a < 1 or n_b < 1:
        msg = f"both groups need at least one value, got {n_a!r} and {n_b!r}"
        raise ValueError(msg)
    return min(1.0, (2 if two_sided else 1) / math.comb(n_a + n_b, n_a))


def smallest_resolvable_gain(sd: float, n: int, alpha: float, family: int = 1) -> float | None:
    """Return the smallest excess of a mean over its threshold that is significant at Bonferroni's (= Holm's first) level.

    ``sd`` between seeds, ``n`` seeds, one-sided ``alpha`` shared by ``family`` tests; never less than the half width of the
    two-sided interval at 1 - alpha, which has to clear the threshold as well. None when n < 2: not resolvable.
    """
    if sd < 0 or not math.isfinite(sd) or not 0 < alpha < 1 or family < 1:
        msg = f"sd must be finite and >= 0, alpha in (0, 1), family >= 1; got {sd!r}, {alpha!r}, {family!r}"
        raise ValueError(msg)
    if n < 2:
        return None
    return t_quantile(1 - alpha / max(2, family), n - 1) * sd / math.sqrt(n)


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests: ``equivalent`` when the mean is inside (-margin, margin) at ``alpha``."""

    p: float | None
    equivalent: bool


def tost_equivalence(
    values: Sequence[float | None], margin: float, alpha: float = 0.05
) -> Equivalence:
    """TOST of the mean against +-margin (Schuirmann 1987); with n < 2 equivalence is not shown."""
    if margin <= 0:
        msg = f"margin must be positive, got {margin!r}"
        raise ValueError(msg)
    above, below = t_test_greater(values, -margin), t_test_less(values, margin)
    if above is None or below is None:
        return Equivalence(None, equivalent=False)
    p = max(above, below)
    return Equivalence(p, p < alpha)


def coverage(samples: Sequence[Sequence[float]], truth: float, confidence: float = 0.95) -> float:
    """Share of the samples whose t interval holds the truth; every sample needs n >= 2."""
    hits = 0
    for sample in samples:
        interval = mean_interval(sample, confidence)
        if interval.low is None or interval.high is None:
            msg = "an interval needs at least two values"
            raise ValueError(msg)
        hits += interval.low <= truth <= interval.high
    return hits / len(samples)


def _check_ps(ps: Sequence[float]) -> None:
    for p in finite(ps, "p"):
        if not 0 <= p <= 1:
            msg = f"a p-value must be within 0..1, got {p!r}"
            raise ValueError(msg)
