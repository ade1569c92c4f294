"""What an analysis says, as values: cells, the minimum of each condition, the shift between conditions. Computes nothing.

Answers to the other questions (best level, comparison, interaction) are in ``a3r.report.contrast_results``.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from a3r.report.records import Scalar


class Verdict(StrEnum):
    """Of one cell, on fresh seeds."""

    TRAINS = "trains"
    SHOWN_NOT = "shown not to train"
    NOT_SHOWN = "not shown to train"
    NOT_REPLICATED = "not replicated"  # fewer than two fresh results
    MEASURED = "measured"  # not judged alone: the question compares cells


class Status(StrEnum):
    """Of the answer in one condition.

    Of a minimum: all but ``tied``. Of a best level: ``confirmed`` (shown above every rival), ``tied`` (shown to be equivalent to
    the rivals that it is not shown above), ``not_confirmed``, ``unresolved``. Of comparisons and interactions: ``confirmed`` (each
    is shown to differ or to be equivalent), ``not_confirmed`` (some is neither), ``unresolved``.
    """

    CONFIRMED = "confirmed"  # claimed level trains; the level below was replicated and is not shown to train
    TIED = "tied"
    NOT_CONFIRMED = "not_confirmed"  # the top level leans yes, but fresh seeds did not confirm it
    UNRESOLVED = "unresolved"  # a needed cell was not tested or not replicated
    CENSORED_LOW = "censored_low"  # the lowest level trains: the minimum is at or below it
    CENSORED_HIGH = "censored_high"  # no level of the grid is shown to train


class Shift(StrEnum):
    """Whether the minimum differs between conditions."""

    SHOWN = "shown"
    NOT_SHOWN = "not_shown"
    NOT_ASKED = "not_asked"


class Value(BaseModel):
    """A frozen part of an analysis."""

    model_config = ConfigDict(frozen=True)


class SeedGain(Value):
    """One admissible run of a cell; ``gain`` is the final value alone when the goal's ``measure`` says so."""

    run_id: str
    seed: int
    gain: float
    fresh: bool
    stage: int = 0
    """Ordinal of the stage that planned it."""
    client: str = ""
    """Tree hash of the client that it ran."""
    client_origin: str = ""
    """... and of the client that this one was repaired from."""


class Bounds(Value):
    """A mean with its t interval; bounds are None when n < 2."""

    low: float | None
    mean: float
    high: float | None
    n: int
    sd: float | None


class Cell(Value):
    """One (condition, level)."""

    condition: Scalar
    level: Scalar
    """A minimum's levels are numbers (``number``); others may be words."""
    planned: int
    """Runs planned here; ``len(gains)`` have a result."""
    gains: tuple[SeedGain, ...]
    all_seeds: Bounds | None
    """None when no run has a result."""
    lean: bool | None
    """Mean gain of all seeds > min_gain; None without results."""
    fresh_planned: int
    contests: dict[int, int] = Field(default_factory=dict[int, int])
    """Ordinal of each stage that planned fresh seeds here, in order -> how many."""
    fresh: Bounds | None
    p: float | None
    """One-sided, fresh seeds: the gain exceeds min_gain. None when fewer than two fresh results."""
    p_adjusted: float | None
    p_not: float | None
    """One-sided, fresh seeds: the gain is below min_gain."""
    p_not_adjusted: float | None
    verdict: Verdict
    camps: str = ""
    """When seeds fall into two camps (some collapse, others train): both in words, for a mean of both describes no run."""

    @property
    def replicated(self) -> bool:
        """At least two fresh results."""
        return self.fresh is not None and self.fresh.n >= 2

    @property
    def number(self) -> float:
        """The level as a number, for questions that need an order; TypeError for a word."""
        if isinstance(self.level, (int, float)) and not isinstance(self.level, bool):
            return self.level
        msg = f"level {self.level!r} is no number"
        raise TypeError(msg)

    @property
    def says_yes(self) -> bool:
        """Fresh verdict if replicated, else the lean; no results say no."""
        return self.verdict is Verdict.TRAINS if self.replicated else bool(self.lean)


class ConditionAnalysis(Value):
    """The minimum in one condition."""

    condition: Scalar
    cells: tuple[Cell, ...]
    """Tested levels (at least one result or planned run), ascending."""
    claimed: float | None
    """Smallest tested level such that it and every higher tested level say yes; None when the highest says no."""
    below: float | None
    """Next lower tested level with a result; None at the lowest tested."""
    untested_between: tuple[float, ...]
    """Grid levels strictly between ``below`` (or the grid's lower edge) and ``claimed`` without a result."""
    below_verdict: Verdict | None
    status: Status
    reason: str
    """Why the status is what it is, in words."""
    monotone: bool
    """False when some tested level says yes while a higher one says no."""

    def cell(self, level: Scalar) -> Cell | None:
        """The cell at a level; None when it was not tested."""
        return next((c for c in self.cells if c.level == level), None)


class LevelDifference(Value):
    """Fresh gains of two conditions at one level: first minus second, Welch; descriptive, not part of the verdict."""

    level: float
    first: Scalar
    second: Scalar
    low: float | None
    difference: float
    high: float | None


class ShiftAnalysis(Value):
    """Does the minimum differ between conditions? Shown only by one level that trains in one and is shown not to in another."""

    status: Shift
    level: float | None = None
    trains_in: Scalar = None
    not_in: Scalar = None
    reason: str
    differences: tuple[LevelDifference, ...] = ()


class MinimumAnalysis(Value):
    """The whole answer."""

    factor: str
    across: str | None
    min_gain: float
    confidence: float
    levels: tuple[float, ...]
    conditions: tuple[ConditionAnalysis, ...]
    """In the goal's order."""
    shift: ShiftAnalysis
    family: int
    """Tests of the campaign's one family: both directions of each cell with fresh seeds."""

    def condition(self, value: Scalar) -> ConditionAnalysis:
        """By the value of the ``across`` factor (None when there is none); KeyError otherwise."""
        for found in self.conditions:
            if found.condition == value:
                return found
        raise KeyError(value)
