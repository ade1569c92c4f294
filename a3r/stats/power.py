"""Before runs are paid for: what a design can show, how likely it is to show it, and how many seeds would.

Power is that of a one-sided t test at ``alpha / family``, Holm's first and hardest step (noncentral t; Cohen 1988). The standard
deviation is an estimate, so the notes are orders of magnitude, not promises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from a3r.stats.distributions import noncentral_t_tail, t_quantile
from a3r.stats.permutation import permutation_attainable_p, sign_flip_attainable_p

Design: TypeAlias = Literal["threshold", "paired", "two-sample"]
"""threshold: one cell's mean against a number. paired: two cells by seed. two-sample: two cells, seeds unrelated."""
MOST_SEEDS = 1000


def power(
    effect: float, sd: float, n: int, alpha: float, design: Design = "threshold", family: int = 1
) -> float:
    """Chance that an effect of that size is shown with ``n`` seeds a cell; 0 when n < 2.

    ``sd`` is between seeds of one cell, for ``paired`` that of the differences. Without spread the chance is 0: such a test claims
    nothing (``a3r.stats.tests``).
    """
    _check(sd, alpha, family)
    if n < 2 or sd == 0.0:
        return 0.0
    df = 2 * (n - 1) if design == "two-sample" else n - 1
    error = sd * math.sqrt((2 if design == "two-sample" else 1) / n)
    return noncentral_t_tail(t_quantile(1 - alpha / family, df), df, effect / error)


def smallest_effect(
    sd: float,
    n: int,
    alpha: float,
    design: Design = "threshold",
    family: int = 1,
    wanted: float = 0.8,
) -> float | None:
    """Smallest effect that is shown with the ``wanted`` chance; None when n < 2 or sd is 0: not resolvable."""
    _check(sd, alpha, family)
    if n < 2 or sd == 0.0:
        return None
    low, high = 0.0, sd
    while power(high, sd, n, alpha, design, family) < wanted:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        if power(middle, sd, n, alpha, design, family) < wanted:
            low = middle
        else:
            high = middle
    return high


def seeds_needed(
    effect: float,
    sd: float,
    alpha: float,
    design: Design = "threshold",
    family: int = 1,
    wanted: float = 0.8,
) -> int | None:
    """Fewest seeds a cell that show ``effect`` with the ``wanted`` chance; None when a thousand do not, or effect or sd is 0."""
    _check(sd, alpha, family)
    if effect <= 0 or power(effect, sd, MOST_SEEDS, alpha, design, family) < wanted:
        return None
    low, high = 1, MOST_SEEDS  # power grows with n: the answer is in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        if power(effect, sd, middle, alpha, design, family) < wanted:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class DesignNote:
    """What a confirmatory stage can show, written down before it is dispatched."""

    design: Design
    n: int
    """Seeds a cell."""
    family: int
    alpha: float
    level: float
    """alpha / family: what the smallest p of the family has to stay below."""
    sd: float | None
    effect: float
    """The smallest that matters."""
    smallest_effect: float | None
    """That is shown in 80 of 100 such campaigns; None: unknown spread, or not resolvable at any size."""
    power: float | None
    """Chance to show ``effect``; None when the spread is not known."""
    seeds_needed: int | None
    """A cell, to show ``effect`` in 80 of 100 campaigns; None: unknown or more than a thousand."""
    permutation_p: float
    """Smallest p that a permutation test of this design can reach, one-sided."""

    @property
    def permutation_reaches(self) -> bool:
        """Whether a test without a model of the noise could show anything at all here."""
        return self.permutation_p < self.level

    @property
    def resolvable(self) -> bool:
        """At least an even chance to show the smallest effect that matters; an unknown spread resolves nothing yet."""
        return self.power is not None and self.power >= 0.5


def design_note(
    *, design: Design, n: int, family: int, alpha: float, sd: float | None, effect: float
) -> DesignNote:
    """Note for a stage of ``family`` tests with ``n`` seeds a cell; ``sd`` None when nothing was measured yet.

    Raises ValueError for n < 1, family < 1 or alpha outside (0, 1).
    """
    _check(0.0 if sd is None else sd, alpha, family)
    attainable = (
        permutation_attainable_p(n, n) if design == "two-sample" else sign_flip_attainable_p(n)
    )
    known = sd or None  # without spread there is nothing to reckon with either
    return DesignNote(
        design=design,
        n=n,
        family=family,
        alpha=alpha,
        level=alpha / family,
        sd=sd,
        effect=effect,
        smallest_effect=smallest_effect(known, n, alpha, design, family) if known else None,
        power=power(effect, known, n, alpha, design, family) if known else None,
        seeds_needed=seeds_needed(effect, known, alpha, design, family) if known else None,
        permutation_p=attainable,
    )


def _check(sd: float, alpha: float, family: int) -> None:
    if not (sd >= 0 and math.isfinite(sd)) or not 0 < alpha < 1 or family < 1:
        msg = f"sd must be finite and >= 0, alpha in (0, 1), family >= 1; got {sd!r}, {alpha!r}, {family!r}"
        raise ValueError(msg)
