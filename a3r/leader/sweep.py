"""The sweep planner: coarse, refine, replicate, conclude; without a language model, and the same plan for the same records.

For each condition it brackets the smallest level that leans towards training, closes the bracket, and repeats the claimed
minimum and the level below it on fresh seeds. What the fresh seeds say can move the claim up or down, and then the new pair is
repeated, until every condition is settled or a limit ends it. What results mean is decided in ``a3r.report.analysis`` only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import (
    Attainable,
    Conclusion,
    DesignRow,
    EndReason,
    Outcome,
    StagePlan,
    Verdict,
)
from a3r.leader.sweep_steps import (
    SETTLED,
    cells_text,
    coarse_design,
    condition_text,
    evidence_of,
    refine_design,
    replicate_design,
)
from a3r.report.analysis import minimum
from a3r.report.records import Records
from a3r.report.results import ConditionAnalysis, MinimumAnalysis, Status
from a3r.stats.tests import smallest_resolvable_gain

END_TEXTS: dict[EndReason, str] = {
    "answered": "Every condition is settled.",
    "exhausted": "No cell is left that could settle what is open.",
    "max_stages": "The budget's number of stages is used up.",
    "max_runs": "The next stage would not fit into the budget's number of runs.",
    "wall_clock": "The budget's wall clock is used up.",
    "stopped": "A person stopped the campaign.",
    "no_data": "No run has a result.",
}


class SweepPlanner:
    """See the module."""

    name = "sweep"

    def next(self, goal: GoalSpec, records: Records) -> StagePlan | Conclusion:
        """The next stage, or the conclusion. Pure."""
        if not records.stages:
            return self._fitting(goal, records, _coarse(goal))
        analysis = minimum(records)
        if not _has_data(analysis):
            return _conclusion(goal, analysis, "no_data")
        refine = refine_design(goal, analysis)
        if refine:
            return self._fitting(goal, records, _refine(goal, analysis, refine))
        confirm = replicate_design(goal, analysis, records)
        if confirm:
            return self._fitting(goal, records, _replicate(goal, analysis, confirm))
        settled = all(found.status in SETTLED for found in analysis.conditions)
        return _conclusion(goal, analysis, "answered" if settled else "exhausted")

    def conclude(self, goal: GoalSpec, records: Records, reason: EndReason) -> Conclusion:
        """What can be said now, because of ``reason``. Pure."""
        return _conclusion(goal, minimum(records), reason)

    def _fitting(self, goal: GoalSpec, records: Records, plan: StagePlan) -> StagePlan | Conclusion:
        """The plan when the budget allows it, else the conclusion that it does not."""
        if len(records.stages) >= goal.budget.max_stages:
            return self.conclude(goal, records, "max_stages")
        planned = sum(len(b.seeds) for b in records.blueprints)
        limit = goal.budget.max_runs
        if limit is not None and planned + plan.runs > limit:
            return self.conclude(goal, records, "max_runs")
        return plan


def _has_data(analysis: MinimumAnalysis) -> bool:
    return any(cell.gains for found in analysis.conditions for cell in found.cells)


# --- stages ----------------------------------------------------------------------------------------------------


def _coarse(goal: GoalSpec) -> StagePlan:
    factor, gain = goal.question.factor, goal.criterion.min_gain
    return StagePlan(
        kind="coarse",
        question=f"Between which tested levels of {factor} does the mean gain cross {gain:+.3f}?",
        design=coarse_design(goal),
        predictions=(
            "Larger levels gain more than smaller ones, and the crossing lies inside the grid.",
        ),
        decision_table=(
            Outcome(
                pattern="the lowest level and every higher one lean yes",
                conclusion="the minimum is at or below the lowest level",
                next="confirm the lowest level on fresh seeds",
            ),
            Outcome(
                pattern="some level leans yes with every higher one, and a lower one leans no",
                conclusion="the minimum lies between these two",
                next="refine between them",
            ),
            Outcome(
                pattern="the highest level leans no",
                conclusion="no level of the grid may train",
                next="repeat the highest level on fresh seeds",
            ),
        ),
        stop_rule=_stop_rule(goal),
        min_effect=gain,
        attainable=Attainable(
            alpha=_alpha(goal), family=0, n=goal.seeds.coarse, sd=None, smallest_gain=None
        ),
        why="Nothing is known yet: the first look spans the grid.",
    )


def _refine(goal: GoalSpec, analysis: MinimumAnalysis, design: tuple[DesignRow, ...]) -> StagePlan:
    return StagePlan(
        kind="refine",
        question=(
            f"Which is the smallest level of {goal.question.factor} inside the bracket whose mean gain exceeds "
            f"{goal.criterion.min_gain:+.3f}?"
        ),
        design=design,
        predictions=tuple(_predict_refine(goal, found) for found in analysis.conditions),
        decision_table=(
            Outcome(
                pattern="a level inside leans yes, with every higher one",
                conclusion="the claimed minimum moves down to it",
                next="refine below it, or confirm it when the level below is tested",
            ),
            Outcome(
                pattern="no level inside leans yes",
                conclusion="the claimed minimum stays at the bracket's upper end",
                next="confirm it and the level below on fresh seeds",
            ),
        ),
        stop_rule=_stop_rule(goal),
        min_effect=goal.criterion.min_gain,
        attainable=Attainable(
            alpha=_alpha(goal),
            family=0,
            n=goal.seeds.refine,
            sd=pooled_sd(analysis),
            smallest_gain=None,
        ),
        why=f"Mean gains so far: {cells_text(goal, analysis)}.",
        evidence=evidence_of(analysis),
    )


def _predict_refine(goal: GoalSpec, found: ConditionAnalysis) -> str:
    where = condition_text(goal, found.condition).strip() or "the grid"
    if not found.untested_between:
        return f"{where}: nothing is open."
    levels = ", ".join(f"{x:g}" for x in found.untested_between)
    return f"{where}: the gain crosses the criterion somewhere among {levels}."


def _replicate(
    goal: GoalSpec, analysis: MinimumAnalysis, design: tuple[DesignRow, ...]
) -> StagePlan:
    family, sd = analysis.family + len(design), pooled_sd(analysis)
    seeds = goal.seeds.replicate
    return StagePlan(
        kind="replicate",
        question="Does the claimed minimum train on fresh seeds, and does the level below it not?",
        design=design,
        predictions=tuple(_predict_replicate(goal, found) for found in analysis.conditions),
        decision_table=(
            Outcome(
                pattern="the claimed minimum trains and the level below does not",
                conclusion="the minimum is confirmed",
                next="conclude for this condition",
            ),
            Outcome(
                pattern="the claimed minimum is not shown to train",
                conclusion="the claim moves up to the next tested level that says yes",
                next="confirm that one",
            ),
            Outcome(
                pattern="the level below trains too",
                conclusion="the claim moves down to it",
                next="confirm the level below that one",
            ),
            Outcome(
                pattern="the highest level is not shown to train",
                conclusion="no level of the grid is shown to train",
                next="conclude for this condition",
            ),
        ),
        stop_rule=_stop_rule(goal),
        min_effect=goal.criterion.min_gain,
        attainable=Attainable(
            alpha=_alpha(goal),
            family=family,
            n=seeds,
            sd=sd,
            smallest_gain=None
            if sd is None
            else smallest_resolvable_gain(sd, seeds, _alpha(goal), family),
        ),
        why=f"The brackets are closed. Mean gains so far: {cells_text(goal, analysis)}.",
        evidence=evidence_of(analysis),
    )


def _predict_replicate(goal: GoalSpec, found: ConditionAnalysis) -> str:
    where = condition_text(goal, found.condition).strip() or "the grid"
    if found.claimed is None:
        return f"{where}: the highest level does not train on fresh seeds either."
    text = f"{where}: {found.claimed:g} trains on fresh seeds"
    return f"{text}, {found.below:g} does not." if found.below is not None else f"{text}."


def _stop_rule(goal: GoalSpec) -> str:
    limits = [f"{goal.budget.max_stages} stages"]
    if goal.budget.max_runs is not None:
        limits.append(f"{goal.budget.max_runs} runs")
    if goal.budget.wall_clock_min is not None:
        limits.append(f"{goal.budget.wall_clock_min:g} minutes")
    return (
        "Stop when every condition has a minimum confirmed on fresh seeds with a level below that is not, or an edge of the "
        f"grid; or at {', '.join(limits)}, and then say what stayed open."
    )


def _alpha(goal: GoalSpec) -> float:
    return round(1 - goal.criterion.confidence, 12)


def pooled_sd(analysis: MinimumAnalysis) -> float | None:
    """Standard deviation between seeds, pooled over cells by degrees of freedom; None when no cell has two results."""
    bounds = [
        c.all_seeds for found in analysis.conditions for c in found.cells if c.all_seeds is not None
    ]
    spread = [(b.n - 1, b.sd) for b in bounds if b.sd is not None]
    freedom = sum(n for n, _ in spread)
    if not freedom:
        return None
    return math.sqrt(math.fsum(n * sd * sd for n, sd in spread) / freedom)


# --- conclusion ------------------------------------------------------------------------------------------------


def _conclusion(goal: GoalSpec, analysis: MinimumAnalysis, reason: EndReason) -> Conclusion:
    verdicts = tuple(
        Verdict(
            condition=found.condition,
            status=found.status,
            level=found.claimed,
            text=_verdict_text(goal, found),
        )
        for found in analysis.conditions
    )
    sentences = [END_TEXTS[reason], *(v.text for v in verdicts)]
    if goal.question.across is not None:
        sentences.append(
            f"A shift of the minimum between conditions: {analysis.shift.status.value.replace('_', ' ')}; "
            f"{analysis.shift.reason}."
        )
    return Conclusion(
        reason=reason,
        text=" ".join(sentences),
        verdicts=verdicts,
        evidence=evidence_of(analysis),
    )


_STATUS_TEXTS: dict[Status, Callable[[str], str]] = {
    Status.CONFIRMED: lambda level: f"the minimum is {level}",
    Status.CENSORED_LOW: lambda level: f"the minimum is at or below {level}, the lowest level",
    Status.CENSORED_HIGH: lambda _: "no level of the grid is shown to train",
    Status.NOT_CONFIRMED: lambda _: "no level of the grid is shown to train",
    Status.UNRESOLVED: lambda _: "the minimum is not resolved",
}


def _verdict_text(goal: GoalSpec, found: ConditionAnalysis) -> str:
    level = "none" if found.claimed is None else f"{found.claimed:g}"
    where = condition_text(goal, found.condition).strip()
    text = f"{_STATUS_TEXTS[found.status](level)} ({found.reason})."
    return f"{where[:1].upper()}{where[1:]}: {text}" if where else f"{text[:1].upper()}{text[1:]}"
