"""The steps of the sweep planner for a minimum: which levels to look at, which cells to confirm. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from a3r.leader.contrast_evidence import contrast_evidence
from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import DesignRow
from a3r.report.analysis import Analysis
from a3r.report.numbers import interval, level_text, scalar_text
from a3r.report.records import Records
from a3r.report.results import ConditionAnalysis, MinimumAnalysis, Status

COARSE_STEP = 3
SETTLED = frozenset(
    {Status.CONFIRMED, Status.CENSORED_LOW, Status.CENSORED_HIGH, Status.NOT_CONFIRMED}
)


def coarse_levels(levels: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Lowest, highest, and every third level between: 1, 8, 64 of seven doublings."""
    chosen = [*range(0, len(levels), COARSE_STEP), len(levels) - 1]
    return tuple(levels[i] for i in sorted(set(chosen)))


def refine_levels(between: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """All of one or two levels; of more, the middle one (of doublings: the geometric middle; of an even number the lower)."""
    if len(between) <= 2:
        return tuple(between)
    return (between[(len(between) - 1) // 2],)


def coarse_design(goal: GoalSpec) -> tuple[DesignRow, ...]:
    """The first look: every condition at the coarse levels."""
    seeds = tuple(range(goal.seeds.first, goal.seeds.first + goal.seeds.coarse))
    return tuple(
        DesignRow(
            factors=goal.cell(level, condition),
            seeds=seeds,
            reason=f"{level} is one of the levels that span the grid.",
        )
        for condition in goal.conditions
        for level in coarse_levels(goal.levels)
    )


def refine_design(goal: GoalSpec, analysis: MinimumAnalysis) -> tuple[DesignRow, ...]:
    """Untested levels strictly inside each condition's bracket; empty when every bracket is closed."""
    seeds = tuple(range(goal.seeds.first, goal.seeds.first + goal.seeds.refine))
    rows: list[DesignRow] = []
    for found in analysis.conditions:
        open_levels = [level_of(goal, x) for x in found.untested_between if found.cell(x) is None]
        rows += [
            DesignRow(
                factors=goal.cell(level, found.condition),
                seeds=seeds,
                reason=bracket_text(found),
            )
            for level in refine_levels(open_levels)
        ]
    return tuple(rows)


def replicate_design(
    goal: GoalSpec, analysis: MinimumAnalysis, records: Records
) -> tuple[DesignRow, ...]:
    """Fresh seeds at each open condition's claimed minimum and the tested level below it, where they are still missing.

    Without a claim the highest level gets them: "no level trains" must not rest on the few seeds of the first look.
    """
    rows: list[DesignRow] = []
    for found in analysis.conditions:
        for level, reason in _to_confirm(goal, found):
            cell = found.cell(float(level)) if isinstance(level, (int, float)) else None
            if cell is None or cell.fresh_planned:
                continue  # never tested, or tried already: asking again would be asking until it fits
            factors = goal.cell(level, found.condition)
            rows.append(
                DesignRow(factors=factors, seeds=fresh_seeds(goal, records, factors), reason=reason)
            )
    return tuple(rows)


def _to_confirm(goal: GoalSpec, found: ConditionAnalysis) -> list[tuple[Scalar, str]]:
    if found.claimed is None:
        top = goal.levels[-1]
        return [
            (
                top,
                f"If even {top} does not train on fresh seeds, no level of the grid is shown to train.",
            )
        ]
    claimed = level_of(goal, found.claimed)
    wanted: list[tuple[Scalar, str]] = [
        (claimed, f"{claimed} is the claimed minimum: it should train on fresh seeds too.")
    ]
    if found.below is not None:
        below = level_of(goal, found.below)
        wanted.append(
            (below, f"{below} is the next lower tested level: it should not train on fresh seeds.")
        )
    return wanted


def fresh_seeds(goal: GoalSpec, records: Records, factors: dict[str, Scalar]) -> tuple[int, ...]:
    """The next seeds that no stage has planned in this cell, from the first number that screening never uses."""
    used = records.planned_seeds(dict(factors))
    seeds: list[int] = []
    candidate = goal.seeds.first_fresh
    while len(seeds) < goal.seeds.replicate:
        if candidate not in used:
            seeds.append(candidate)
        candidate += 1
    return tuple(seeds)


def level_of(goal: GoalSpec, number: float) -> Scalar:
    """The goal's own level for the analysis' number (16, not 16.0)."""
    return next(level for level in goal.levels if level == number)


def condition_text(goal: GoalSpec, condition: Scalar | None) -> str:
    """``at max_response_tokens 10``; empty without an across factor."""
    across = goal.question.across
    return "" if across is None else f" at {across} {scalar_text(condition)}"


def bracket_text(found: ConditionAnalysis) -> str:
    """Where the threshold lies, in words."""
    high = UNKNOWN if found.claimed is None else level_text(found.claimed)
    low = "the grid's edge" if found.below is None else level_text(found.below)
    return f"The smallest level that says yes so far is {high}, the next lower one that was tested is {low}."


UNKNOWN = "none"


def evidence_of(analysis: Analysis) -> dict[str, object]:
    """The cell means and counts that a decision rests on, as JSON."""
    if not isinstance(analysis, MinimumAnalysis):
        return contrast_evidence(analysis)
    return {
        "cells": [
            {
                "condition": cell.condition,
                "level": cell.level,
                "n": len(cell.gains),
                "planned": cell.planned,
                "mean_gain": cell.all_seeds.mean if cell.all_seeds else None,
                "lean": cell.lean,
                "fresh_n": cell.fresh.n if cell.fresh else 0,
                "fresh_mean_gain": cell.fresh.mean if cell.fresh else None,
                "fresh_low": cell.fresh.low if cell.fresh else None,
                "fresh_high": cell.fresh.high if cell.fresh else None,
                "p_adjusted": cell.p_adjusted,
                "verdict": cell.verdict.value,
            }
            for found in analysis.conditions
            for cell in found.cells
        ],
        "claims": [
            {
                "condition": found.condition,
                "claimed": found.claimed,
                "below": found.below,
                "status": found.status.value,
                "reason": found.reason,
            }
            for found in analysis.conditions
        ],
        "shift": analysis.shift.status.value,
        "family": analysis.family,
    }


def cells_text(goal: GoalSpec, analysis: MinimumAnalysis) -> str:
    """One line a condition: its cells' mean gains with intervals."""
    lines: list[str] = []
    for found in analysis.conditions:
        cells = ", ".join(
            f"{level_text(c.number)}: {interval(c.all_seeds)}" for c in found.cells if c.all_seeds
        )
        where = condition_text(goal, found.condition).strip() or "all"
        lines.append(f"{where}: {cells or 'no result'}")
    return "; ".join(lines)
