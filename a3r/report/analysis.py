"""The goal's question, answered from records alone.

Planner and report both call ``analyse``; there is no other place that decides what a result means. Pure: the same records give
the same analysis. Best level, comparison and interaction are ``a3r.report.contrast_analysis``; here is the minimum: cells,
verdicts, the claimed minimum, the shift between conditions. Rules:

- a cell's *lean* is whether its mean gain over all admissible seeds exceeds ``min_gain`` (exploratory);
- a cell *trains* when, on fresh seeds only, the interval's lower bound exceeds ``min_gain`` and the one-sided p, Holm-adjusted
  over one family that holds both directions of every cell of the campaign that got fresh seeds (``a3r.report.family``), is below
  ``1 - confidence``;
- it is *shown not to train* when, on fresh seeds, the upper bound is below ``min_gain`` and the p of the other direction,
  adjusted in the same family, is below ``1 - confidence``;
- a cell with fresh results is judged by them, any other by its lean; the claimed minimum is the smallest tested level such
  that it and every higher tested level say yes.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, TypeAlias

from a3r.core.errors import GoalError
from a3r.report.cells import analyse_cells
from a3r.report.contrast_analysis import analyse_contrasts
from a3r.report.contrast_results import ContrastAnalysis
from a3r.report.gains import run_gains
from a3r.report.numbers import level_text, scalar_text, signed
from a3r.report.question import Question, question_of
from a3r.report.records import Records, Scalar
from a3r.report.results import (
    Cell,
    ConditionAnalysis,
    LevelDifference,
    MinimumAnalysis,
    Shift,
    ShiftAnalysis,
    Status,
    Verdict,
)
from a3r.stats.intervals import welch_difference

Analysis: TypeAlias = MinimumAnalysis | ContrastAnalysis


def analyse(records: Records, goal: dict[str, Any] | None = None) -> Analysis:
    """The answer to whatever the goal asks; ``goal`` defaults to the spec inside the records.

    Raises:
        GoalError: the goal's question is none that is analysed.
    """
    question = question_of(records.campaign.goal_spec if goal is None else goal)
    cells = analyse_cells(run_gains(records, question), question)
    if question.asks_minimum:
        return _minimum(cells, question)
    return analyse_contrasts(cells, question)


def minimum(records: Records, goal: dict[str, Any] | None = None) -> MinimumAnalysis:
    """The answer to a minimum question. Conditions without any run are there, empty.

    Raises:
        GoalError: the goal asks something else.
    """
    found = analyse(records, goal)
    if not isinstance(found, MinimumAnalysis):
        msg = f"the goal asks for a question of kind {found.kind!r}, not for a minimum"
        raise GoalError(msg, hint="Use a3r.report.analysis.analyse.")
    return found


def _minimum(cells: list[Cell], question: Question) -> MinimumAnalysis:
    conditions = tuple(
        _condition([c for c in cells if c.condition == value], value, question)
        for value in question.conditions
    )
    return MinimumAnalysis(
        factor=question.factor,
        across=question.across,
        min_gain=question.min_gain,
        confidence=question.confidence,
        levels=question.numbers,
        conditions=conditions,
        shift=_shift(conditions, question),
        family=2 * sum(c.fresh_planned > 0 for c in cells),
    )


def _condition(cells: list[Cell], value: Scalar, question: Question) -> ConditionAnalysis:
    tested = [c for c in cells if c.all_seeds is not None]
    claimed = _claimed(tested)
    level = claimed.number if claimed else None
    lower = [c for c in tested if level is not None and c.number < level]
    below = lower[-1] if lower else None
    results = {c.number for c in tested}
    between = tuple(
        x
        for x in question.numbers
        if level is not None
        and x < level
        and (below is None or x > below.number)
        and x not in results
    )
    status, reason = _status(tested, claimed, below, between, question)
    yes = [c.says_yes for c in tested]
    return ConditionAnalysis(
        condition=value,
        cells=tuple(cells),
        claimed=level,
        below=below.number if below else None,
        untested_between=between,
        below_verdict=below.verdict if below else None,
        status=status,
        reason=reason,
        monotone=yes == sorted(yes),
    )


def _claimed(tested: list[Cell]) -> Cell | None:
    claimed = None
    for cell in reversed(tested):
        if not cell.says_yes:
            break
        claimed = cell
    return claimed


def _status(
    tested: list[Cell],
    claimed: Cell | None,
    below: Cell | None,
    between: tuple[float, ...],
    question: Question,
) -> tuple[Status, str]:
    if not tested:
        return Status.UNRESOLVED, "no run has a result"
    stray = _stray(tested, claimed)
    if claimed is None:
        return _edge(tested[-1], stray, question)
    name = f"level {level_text(claimed.number)}"
    if not claimed.replicated:
        return Status.UNRESOLVED, f"{name} was not replicated with at least two fresh seeds"
    if between:
        levels = ", ".join(level_text(x) for x in between)
        return Status.UNRESOLVED, f"{name} trains, but below it nothing is known about {levels}"
    if below is None:
        return Status.CENSORED_LOW, f"{name} is the lowest of the grid and trains"
    if not below.replicated:
        return (
            Status.UNRESOLVED,
            f"{name} trains, but level {level_text(below.number)} below it was not replicated with at least two fresh seeds",
        )
    if stray is not None:
        return (
            Status.UNRESOLVED,
            f"{name} trains, level {level_text(below.number)} below it is {below.verdict}, but level {level_text(stray.number)} trains",
        )
    return (
        Status.CONFIRMED,
        f"{name} trains and level {level_text(below.number)} is {below.verdict}",
    )


def _stray(tested: list[Cell], claimed: Cell | None) -> Cell | None:
    """The lowest level that is shown to train though a higher one, below the claim, says no: then there is no one minimum."""
    lower = [c for c in tested if claimed is None or c.number < claimed.number]
    return next((c for c in lower if c.verdict is Verdict.TRAINS), None)


def _edge(top: Cell, stray: Cell | None, question: Question) -> tuple[Status, str]:
    name = f"level {level_text(top.number)}"
    if top.number != question.numbers[-1]:
        highest = level_text(question.numbers[-1])
        return (
            Status.UNRESOLVED,
            f"{name} says no, and the highest level {highest} has no result",
        )
    if stray is not None:
        return (
            Status.UNRESOLVED,
            f"{name}, the highest, is not shown to train, but level {level_text(stray.number)} trains",
        )
    if top.lean and top.replicated:
        return (
            Status.NOT_CONFIRMED,
            f"the mean gain at {name}, the highest, exceeds {signed(question.min_gain)}, but fresh seeds do not confirm it",
        )
    return Status.CENSORED_HIGH, f"even {name}, the highest, is not shown to train"


def _shift(conditions: tuple[ConditionAnalysis, ...], question: Question) -> ShiftAnalysis:
    if question.across is None or len(conditions) < 2:
        return ShiftAnalysis(status=Shift.NOT_ASKED, reason="the goal compares no conditions")
    differences = _differences(conditions, question)
    for level in question.numbers:
        cells = [c for c in (a.cell(level) for a in conditions) if c is not None]
        trains = [c for c in cells if c.verdict is Verdict.TRAINS]
        not_in = [c for c in cells if c.verdict is Verdict.SHOWN_NOT]
        if trains and not_in:
            yes, no = trains[0].condition, not_in[0].condition
            return ShiftAnalysis(
                status=Shift.SHOWN,
                level=level,
                trains_in=yes,
                not_in=no,
                reason=(
                    f"level {level_text(level)} trains at {question.across} {scalar_text(yes)}"
                    f" and is shown not to train at {scalar_text(no)}"
                ),
                differences=differences,
            )
    return ShiftAnalysis(
        status=Shift.NOT_SHOWN,
        reason=f"no level trains at one {question.across} and is shown not to train at another",
        differences=differences,
    )


def _differences(
    conditions: tuple[ConditionAnalysis, ...], question: Question
) -> tuple[LevelDifference, ...]:
    out: list[LevelDifference] = []
    for level in question.numbers:
        for first, second in combinations(conditions, 2):
            a, b = _fresh(first.cell(level)), _fresh(second.cell(level))
            if a and b:
                found = welch_difference(a, b, question.confidence)
                out.append(
                    LevelDifference(
                        level=level,
                        first=first.condition,
                        second=second.condition,
                        low=found.low,
                        difference=found.difference,
                        high=found.high,
                    )
                )
    return tuple(out)


def _fresh(cell: Cell | None) -> list[float]:
    return [g.gain for g in cell.gains if g.fresh] if cell else []
