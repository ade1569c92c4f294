"""What a proposed stage can show at best, and whether the budget allows it: computed as for the sweep planner's stages."""

from __future__ import annotations

from collections.abc import Iterator

from a3r.leader.contrast_steps import pairs_of
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Attainable, DesignRow, StagePlan
from a3r.leader.resolution import (
    attainable,
    confirming_number,
    nothing_confirmed,
    paired_sd,
    pooled_sd,
)
from a3r.leader.spending import gpu_hours_for
from a3r.leader.sweep import over_budget
from a3r.leader.sweep_contrast import family_of
from a3r.report.analysis import analyse
from a3r.report.records import Records
from a3r.report.results import MinimumAnalysis


def reach(
    goal: GoalSpec, records: Records, rows: tuple[DesignRow, ...], *, confirms: bool
) -> Attainable:
    """Of a stage that explores: nothing; of one that confirms: alpha, family, power."""
    analysis = analyse(records) if records.stages else None
    if not confirms or analysis is None:
        sd = None if analysis is None else pooled_sd(analysis)
        return nothing_confirmed(goal, len(rows[0].seeds), sd)
    number = confirming_number(records)
    if isinstance(analysis, MinimumAnalysis):
        family = 2 * len(rows)  # both directions of every cell
        sd = pooled_sd(analysis)
        return attainable(goal, design="threshold", family=family, sd=sd, number=number)
    levels = [row.factors[goal.question.factor] for row in rows]
    pairs = [pair for found in analysis.conditions for pair in pairs_of(found, levels)]
    family, sd = family_of(goal, rows), paired_sd(pairs)
    return attainable(goal, design="paired", family=family, sd=sd, number=number)


def rooms(goal: GoalSpec, records: Records) -> dict[str, int | None]:
    """What the budget leaves: stages, and runs (None: no limit)."""
    limit = goal.budget.max_runs
    planned = sum(len(b.seeds) for b in records.blueprints)
    return {
        "stages": max(0, goal.budget.max_stages - len(records.stages)),
        "runs": None if limit is None else max(0, limit - planned),
    }


def budget_faults(goal: GoalSpec, records: Records, plan: StagePlan) -> Iterator[str]:
    """Which limit the stage would break, as sentences for the model."""
    reason, left = over_budget(goal, records, plan), rooms(goal, records)
    if reason == "max_stages":
        yield f"the budget's {goal.budget.max_stages} stages are used: finish"
    if reason == "max_runs":
        yield f"the stage takes {plan.runs} runs and the budget leaves {left['runs']}: propose fewer cells, or finish"
    if reason == "gpu_hours":
        hours = gpu_hours_for(goal, records, plan)
        yield (
            f"the campaign would take {hours:.1f} GPU hours of {goal.budget.gpu_hours:g}: propose fewer cells, or finish"
        )
