"""One-sample t tests, corrections for many tests, and what a design can reach at best."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def holm_both_directions(
    greater: Sequence[float | None], less: Sequence[float | None]
) -> tuple[list[float | None], list[float | None]]:
    """Holm over one family that holds both directions of every test, in the order given.

    None (too few values) counts as p = 1, so that a planned test is not forgotten, and stays None. ValueError when the lengths
    differ.
    """
    if len(greater) != len(less):
        msg = f"both directions need one p a test, got {len(greater)} and {len(less)}"
        raise ValueError(msg)
    raw = [*greater, *less]
    adjusted = holm([1.0 if p is None else p for p in raw])
    kept = [None if p is None else a for p, a in zip(raw, adjusted, strict=True)]
    return kept[: len(greater)], kept[len(greater) :]


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p-values (1995), in the order given; false discovery rate."""
    _check_ps(ps)
    order = sorted(range(len(ps)), key=lambda i: ps[i], reverse=True)
    adjusted, running = [0.0] * len(ps), 1.0
    for rank, index in enumerate(order):
        running = min(running, ps[index] * (len(ps) / (len(ps) - rank)))
        adjusted[index] = running
    return adjusted


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
