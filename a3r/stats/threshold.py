"""Where a rising response first exceeds a criterion, with a confidence set of levels and censoring at the grid's edges.

Estimate: isotonic regression (pool adjacent violators, weights = seeds; Ayer et al. 1955), then the smallest level whose fitted mean
exceeds the criterion. Set: test inversion by two fixed sequences of t tests (Maurer, Hothorn and Lehmacher 1995): from the highest
level down "exceeds", from the lowest up "stays below", each until the first that is not shown, each at half the error. Under a
rising truth the first true null of a sequence must be rejected before an error is made, so the set holds the true threshold in at
least ``confidence`` of campaigns, for any number of levels, without a further correction. The share of each level among seeded
resamples of the fit says where inside the set the weight lies; it is descriptive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from a3r.stats.distributions import t_tail
from a3r.stats.intervals import finite, mean, pooled_sd, sample_sd
from a3r.stats.tests import t_test_greater, t_test_less

RESAMPLES = 400


@dataclass(frozen=True)
class LevelSample:
    """The seeds' values at one level, at least one."""

    level: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Threshold:
    """The smallest level whose mean exceeds the criterion, among the levels that were tested."""

    estimate: float | None
    """From the isotonic fit; None when even the highest fitted mean does not exceed the criterion."""
    candidates: tuple[float, ...]
    """Confidence set: tested levels that can be the threshold, ascending."""
    above_possible: bool
    """Censored above: that no tested level exceeds the criterion can not be ruled out."""
    below_possible: bool
    """Censored below: the lowest tested level may exceed it, so the threshold may lie below the grid."""
    fit: tuple[float, ...]
    """Isotonic means in the order of the levels."""
    violation: float
    """Largest fall of a raw mean below an earlier one, 0 when the means rise: how much the fit had to mend."""
    support: tuple[float, ...]
    """Share of resamples by level in order, then of "none": adds up to 1. All 0 when no level has two values."""


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Rising least-squares fit by pooling adjacent violators; in order; ValueError when lengths differ or a weight is not positive."""
    if len(values) != len(weights) or any(w <= 0 for w in weights):
        msg = "isotonic regression needs one positive weight a value"
        raise ValueError(msg)
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(finite(values), weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            last = blocks.pop()
            total = last[1] + block[1]
            pooled = (last[0] * last[1] + block[0] * block[1]) / total
            block = (pooled, total, last[2] + block[2])
        blocks.append(block)
    return [value for value, _, count in blocks for _ in range(count)]


def threshold(
    samples: Sequence[LevelSample],
    criterion: float,
    confidence: float = 0.95,
    *,
    equal_spread: bool = False,
    seed: int = 0,
) -> Threshold:
    """Estimate and confidence set over the tested levels.

    ``equal_spread`` pools the spread over levels: far smaller sets at few seeds, and wrong where one level is wilder than others, as
    one that collapses is; so it must be asked for. Without it a level with one value takes part in the fit and stops both sequences.
    Raises ValueError for no level, a repeated level, a level without values, or missing numbers.
    """
    ordered = _checked(samples, confidence)
    means, weights = [mean(s.values) for s in ordered], [float(len(s.values)) for s in ordered]
    fit = isotonic(means, weights)
    first = _first_above(fit, criterion)
    low, high = _bounds(ordered, criterion, (1 - confidence) / 2, equal_spread=equal_spread)
    return Threshold(
        estimate=None if first is None else ordered[first].level,
        candidates=tuple(s.level for s in ordered[low : high + 1]),
        above_possible=high == len(ordered),
        below_possible=low == 0,
        fit=tuple(fit),
        violation=max(0.0, *(max(means[: i + 1]) - m for i, m in enumerate(means))),
        support=_support(ordered, fit, weights, criterion, seed),
    )


def _checked(samples: Sequence[LevelSample], confidence: float) -> list[LevelSample]:
    ordered = sorted(samples, key=lambda s: s.level)
    levels = [s.level for s in ordered]
    if not ordered or len(set(levels)) != len(levels) or any(not s.values for s in ordered):
        msg = "a threshold needs at least one level, each once and with a value"
        raise ValueError(msg)
    if not 0 < confidence < 1:
        msg = f"confidence must be between 0 and 1, got {confidence!r}"
        raise ValueError(msg)
    return ordered


def _first_above(fit: Sequence[float], criterion: float) -> int | None:
    return next((i for i, value in enumerate(fit) if value > criterion), None)


def _bounds(
    ordered: list[LevelSample], criterion: float, alpha: float, *, equal_spread: bool
) -> tuple[int, int]:
    """(first, last) position of the set; last = number of levels: "none of them" belongs to it too."""
    ps = [_both_ps(s, criterion, _pooled(ordered) if equal_spread else None) for s in ordered]
    above = sum(1 for _ in takewhile(lambda p: p[0] < alpha, reversed(ps)))
    below = sum(1 for _ in takewhile(lambda p: p[1] < alpha, ps))
    return below, len(ordered) - above


def _both_ps(
    sample: LevelSample, criterion: float, pooled: tuple[float, int] | None
) -> tuple[float, float]:
    """One-sided p of "exceeds" and of "stays below"; 1 when nothing can be said."""
    if pooled is None:
        greater = t_test_greater(sample.values, criterion)
        less = t_test_less(sample.values, criterion)
        return 1.0 if greater is None else greater, 1.0 if less is None else less
    sd, df = pooled
    if sd == 0.0:
        return 1.0, 1.0
    statistic = (mean(sample.values) - criterion) / (sd / math.sqrt(len(sample.values)))
    return t_tail(statistic, df), t_tail(-statistic, df)


def _pooled(ordered: list[LevelSample]) -> tuple[float, int] | None:
    """Spread within levels and its degrees of freedom; None when no level has two values."""
    df = sum(len(s.values) - 1 for s in ordered)
    return (pooled_sd([s.values for s in ordered]), df) if df else None


def _support(
    ordered: list[LevelSample],
    fit: Sequence[float],
    weights: Sequence[float],
    criterion: float,
    seed: int,
) -> tuple[float, ...]:
    """Parametric resampling: fitted means plus normal noise of each level's own standard error, or the pooled one for single seeds."""
    pooled = _pooled(ordered)
    if pooled is None:
        return (0.0,) * (len(ordered) + 1)
    errors = [
        (pooled[0] if sd is None else sd) / math.sqrt(len(s.values))
        for s, sd in ((s, sample_sd(s.values)) for s in ordered)
    ]
    rng = random.Random(seed)  # noqa: S311 - not a secret
    counts = [0] * (len(ordered) + 1)
    for _ in range(RESAMPLES):
        drawn = [rng.gauss(centre, error) for centre, error in zip(fit, errors, strict=True)]
        first = _first_above(isotonic(drawn, weights), criterion)
        counts[len(ordered) if first is None else first] += 1
    return tuple(count / RESAMPLES for count in counts)
