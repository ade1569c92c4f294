"""What the analysis of a best level, a comparison or an interaction says, as values. Computes nothing."""

from __future__ import annotations

from enum import StrEnum

from a3r.report.records import Scalar
from a3r.report.results import Bounds, Cell, Status, Value


class Shown(StrEnum):
    """Of one comparison, on fresh seeds, after correction over the campaign's family."""

    HIGHER = "higher"
    LOWER = "lower"
    EQUIVALENT = "equivalent"  # the difference is smaller than the goal's smallest effect
    NOT_SHOWN = "not shown to differ"  # neither: no finding of "no difference"
    NOT_REPLICATED = "not replicated"  # fewer than two seeds that all its cells have fresh
    MEASURED = "measured"  # descriptive: not tested, not part of the family


class Judged(Value):
    """A difference between cells, seed by seed, over the seeds that are fresh in all of them."""

    seeds: tuple[int, ...]
    alone: tuple[int, ...]
    """Fresh seeds with a result in some of the cells only: left out of the difference, and said so."""
    contest: int | None
    """Ordinal of the stage that planned fresh seeds in all of its cells: the first one, for a second time would be asking until it
    fits (a later one only where the first left fewer than two results). None: there is none."""
    planned: int
    """Seeds that this stage planned in the cell that has the fewest; 0 without such a stage."""
    difference: Bounds | None
    """Mean with its t interval over ``seeds``; None without any. Bounds are None below two seeds and without spread."""
    p_higher: float | None
    """One-sided. None below two seeds, and for a descriptive difference."""
    p_higher_adjusted: float | None
    p_lower: float | None
    p_lower_adjusted: float | None
    p_equivalent: float | None
    """Two one-sided tests against the goal's smallest effect; None when the goal names none."""
    p_equivalent_adjusted: float | None
    first_look: float | None
    """Difference of the means over all seeds: exploratory. None when a cell has no result."""
    negligible: bool
    """Shown to be smaller than the smallest effect that matters; may be true of a shown difference too."""
    verdict: Shown


class Contrast(Judged):
    """``level`` minus ``against``, both at ``condition``."""

    condition: Scalar
    level: Scalar
    against: Scalar


class Interaction(Judged):
    """(``level`` minus ``against`` at ``condition``) minus (the same at ``other``)."""

    level: Scalar
    against: Scalar
    condition: Scalar
    other: Scalar


class ConditionContrasts(Value):
    """One condition: its cells and how they compare."""

    condition: Scalar
    cells: tuple[Cell, ...]
    """Levels with at least one planned run, in the grid's order."""
    contrasts: tuple[Contrast, ...]
    """best: every pair of levels with fresh seeds. comparison and interaction: each level against the baseline."""
    leader: Scalar
    """best: the level with the highest mean, of fresh seeds where there are any. Else the baseline. None without results."""
    challengers: tuple[Scalar, ...]
    """best: levels whose first look is above the leader's fresh mean, without fresh seeds of their own."""
    aside: tuple[Scalar, ...]
    """Levels with results that were not repeated on fresh seeds."""
    untested: tuple[Scalar, ...]
    """Levels of the grid without any result."""
    status: Status
    reason: str

    def cell(self, level: Scalar) -> Cell | None:
        """The cell at a level; None when it was not tested."""
        return next((c for c in self.cells if c.level == level), None)

    def contrast(self, level: Scalar, against: Scalar) -> Contrast | None:
        """The contrast of exactly these two in this order; None when there is none."""
        return next((c for c in self.contrasts if (c.level, c.against) == (level, against)), None)


class ContrastAnalysis(Value):
    """The whole answer."""

    kind: str
    """``best``, ``comparison`` or ``interaction``."""
    factor: str
    across: str | None
    measure: str
    baseline: Scalar
    smallest_effect: float | None
    min_gain: float
    confidence: float
    levels: tuple[Scalar, ...]
    conditions: tuple[ConditionContrasts, ...]
    """In the goal's order."""
    interactions: tuple[Interaction, ...] = ()
    status: Status
    """Of an interaction: ``confirmed`` (shown), ``tied`` (shown to be smaller than what matters), ``not_confirmed``,
    ``unresolved``. Of the others: the weakest of the conditions'."""
    reason: str
    family: int
    """Tests that share alpha: both directions, and equivalence when it is asked, of every planned comparison."""

    def condition(self, value: Scalar) -> ConditionContrasts:
        """By the value of the ``across`` factor (None when there is none); KeyError otherwise."""
        for found in self.conditions:
            if found.condition == value:
                return found
        raise KeyError(value)
