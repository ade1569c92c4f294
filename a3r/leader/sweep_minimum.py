"""The stages of a minimum question: coarse, refine, replicate, and what is said at the end.

For each condition it brackets the smallest level that leans towards training, closes the bracket, and repeats the claimed
minimum and the level below it on fresh seeds. What the fresh seeds say can move the claim up or down, and then the new pair is
repeated, until every condition is settled. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import (
    Conclusion,
    DesignRow,
    EndReason,
    Outcome,
    StagePlan,
    Verdict,
)
from a3r.leader.resolution import attainable, confirming_number, nothing_confirmed, pooled_sd
from a3r.leader.stage_words import END_TEXTS, stop_rule
from a3r.leader.sweep_steps import (
    SETTLED,
    cells_text,
    coarse_design,
    condition_text,
    evidence_of,
    refine_design,
    replicate_design,
)
from a3r.report.records import Records
from a3r.report.results import ConditionAnalysis, MinimumAnalysis, Status

DONE = "every condition has a minimum confirmed on fresh seeds with a level below that is not, or an edge of the grid"


def first_stage(goal: GoalSpec) -> StagePlan:
    """Nothing is known yet."""
    return _coarse(goal)


def next_stage(
    goal: GoalSpec, analysis: MinimumAnalysis, records: Records
) -> StagePlan | Conclusion:
    """What follows from what is known; some run has a result."""
    refine = refine_design(goal, analysis)
    if refine:
        return _refine(goal, analysis, refine)
    confirm = replicate_design(goal, analysis, records)
    if confirm:
        return _replicate(goal, analysis, confirm, confirming_number(records))
    settled = all(found.status in SETTLED for found in analysis.conditions)
    return conclusion(goal, analysis, "answered" if settled else "exhausted")


# --- stages ---------------------------------------------------------------------------------------------------


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
        stop_rule=stop_rule(goal, DONE),
        min_effect=gain,
        attainable=nothing_confirmed(goal, goal.seeds.coarse, None),
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
        stop_rule=stop_rule(goal, DONE),
        min_effect=goal.criterion.min_gain,
        attainable=nothing_confirmed(goal, goal.seeds.refine, pooled_sd(analysis)),
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
    goal: GoalSpec, analysis: MinimumAnalysis, design: tuple[DesignRow, ...], number: int
) -> StagePlan:
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
        stop_rule=stop_rule(goal, DONE),
        min_effect=goal.criterion.min_gain,
        attainable=attainable(
            goal,
            design="threshold",
            family=2 * len(design),  # both directions of every cell
            sd=pooled_sd(analysis),
            number=number,
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


# --- conclusion ------------------------------------------------------------------------------------------------


def conclusion(goal: GoalSpec, analysis: MinimumAnalysis, reason: EndReason) -> Conclusion:
    """What can be said, because of ``reason``."""
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
