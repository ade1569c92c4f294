"""Is the difference smaller than the smallest that matters? Two one-sided tests (Schuirmann 1987) beside the test of a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from a3r.stats.distributions import t_tail
from a3r.stats.intervals import mean, sample_sd
from a3r.stats.tests import t_test_greater, t_test_less


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests: ``equivalent`` when the mean or difference is inside (-margin, margin) at ``alpha``."""

    p: float | None
    """The larger of the two; None when a sample has n < 2."""
    equivalent: bool


def tost_equivalence(
    values: Sequence[float | None], margin: float, alpha: float = 0.05
) -> Equivalence:
    """TOST of a mean against +-margin, also of differences by seed; with n < 2 equivalence is not shown."""
    _check_margin(margin)
    return _judged(t_test_greater(values, -margin), t_test_less(values, margin), alpha)


def welch_equivalence(
    a: Sequence[float | None], b: Sequence[float | None], margin: float, alpha: float = 0.05
) -> Equivalence:
    """TOST of mean(a) - mean(b) against +-margin with Welch's standard error; without any spread p is 1."""
    _check_margin(margin)
    difference = mean(a) - mean(b)
    sd_a, sd_b = sample_sd(a), sample_sd(b)
    if sd_a is None or sd_b is None:
        return Equivalence(None, equivalent=False)
    va, vb = sd_a**2 / len(a), sd_b**2 / len(b)
    if va + vb == 0.0:
        return Equivalence(1.0, equivalent=False)
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    error = math.sqrt(va + vb)
    above = t_tail((difference + margin) / error, df)
    below = t_tail((margin - difference) / error, df)
    return _judged(above, below, alpha)


class Relation(StrEnum):
    """What two conditions may be said to be, after correction."""

    GREATER = "greater"
    LESS = "less"
    EQUIVALENT = "equivalent"  # the difference is smaller than the smallest that matters
    UNRESOLVED = "unresolved"  # neither shown: not a finding of "no difference"


@dataclass(frozen=True)
class Finding:
    """A relation and whether the difference, though shown, is smaller than what matters."""

    relation: Relation
    negligible: bool


def relation(
    difference: float, p_different: float | None, p_equivalent: float | None, alpha: float
) -> Finding:
    """Both verdicts from p-values that are corrected already.

    A difference that is shown keeps its direction even where it is shown to be negligible too: both facts are true and printed.
    ``alpha`` is the level of ``p_different`` (two-sided) and of each one-sided test behind ``p_equivalent``.
    """
    small = p_equivalent is not None and p_equivalent < alpha
    if p_different is not None and p_different < alpha and difference != 0.0:
        return Finding(Relation.GREATER if difference > 0 else Relation.LESS, small)
    return Finding(Relation.EQUIVALENT if small else Relation.UNRESOLVED, small)


def _judged(above: float | None, below: float | None, alpha: float) -> Equivalence:
    if above is None or below is None:
        return Equivalence(None, equivalent=False)
    p = max(above, below)
    return Equivalence(p, p < alpha)


def _check_margin(margin: float) -> None:
    if not (margin > 0 and math.isfinite(margin)):
        msg = f"margin must be positive and finite, got {margin!r}"
        raise ValueError(msg)
