"""The stages of a best level, a comparison or an interaction, and what is said at the end.

The first look spans the levels, a best number is looked for more closely beside its leader, and what would be claimed is repeated on
fresh seeds that all compared cells share. A best level is not said before that. Pure.
"""

from __future__ import annotations

from a3r.leader.contrast_evidence import contrast_evidence, means_text
from a3r.leader.contrast_steps import closer_design, confirm_design, first_design, pairs_of
from a3r.leader.contrast_words import DONE, first_words, replicate_words
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Conclusion, DesignRow, EndReason, Outcome, StagePlan, Verdict
from a3r.leader.resolution import (
    attainable,
    confirming_number,
    effect_of,
    nothing_confirmed,
    paired_sd,
    pooled_sd,
)
from a3r.leader.stage_words import END_TEXTS, stop_rule
from a3r.report.contrast_results import ContrastAnalysis
from a3r.report.numbers import scalar_text
from a3r.report.records import Records
from a3r.report.results import Status

SETTLED = frozenset({Status.CONFIRMED, Status.TIED})


def first_stage(goal: GoalSpec) -> StagePlan:
    """Nothing is known yet."""
    words = first_words(goal)
    return StagePlan(
        kind="coarse",
        question=words.question,
        design=first_design(goal),
        predictions=words.predictions,
        decision_table=words.table,
        stop_rule=stop_rule(goal, DONE[goal.question.kind]),
        min_effect=effect_of(goal),
        attainable=nothing_confirmed(goal, goal.seeds.coarse, None),
        why="Nothing is known yet: the first look spans the levels.",
    )


def next_stage(
    goal: GoalSpec, analysis: ContrastAnalysis, records: Records
) -> StagePlan | Conclusion:
    """What follows from what is known; some run has a result."""
    closer = closer_design(goal, analysis)
    if closer:
        return _closer(goal, analysis, closer)
    confirm = confirm_design(goal, analysis, records)
    if confirm:
        return _confirm(goal, analysis, confirm, confirming_number(records))
    settled = analysis.status in SETTLED
    return conclusion(goal, analysis, "answered" if settled else "exhausted")


def _closer(goal: GoalSpec, analysis: ContrastAnalysis, design: tuple[DesignRow, ...]) -> StagePlan:
    factor = goal.question.factor
    leaders = {str(found.leader) for found in analysis.conditions if found.leader is not None}
    return StagePlan(
        kind="refine",
        question=f"Does a level of {factor} beside the leader ({', '.join(sorted(leaders))}) do better?",
        design=design,
        predictions=(
            "The metric rises and falls once over the grid, so the best level is the leader or beside it.",
        ),
        decision_table=(
            Outcome(
                pattern="a level beside it has a higher mean",
                conclusion="that one leads",
                next="look beside it, or repeat it on fresh seeds when its neighbours are tested",
            ),
            Outcome(
                pattern="none has",
                conclusion="the leader stays",
                next="repeat it and its nearest rivals on fresh seeds",
            ),
        ),
        stop_rule=stop_rule(goal, DONE["best"]),
        min_effect=effect_of(goal),
        attainable=nothing_confirmed(goal, goal.seeds.refine, pooled_sd(analysis)),
        why=f"Means so far: {means_text(analysis)}.",
        evidence=contrast_evidence(analysis),
    )


def _confirm(
    goal: GoalSpec, analysis: ContrastAnalysis, design: tuple[DesignRow, ...], number: int
) -> StagePlan:
    words = replicate_words(goal, analysis)
    levels = [row.factors[goal.question.factor] for row in design]
    pairs = [pair for found in analysis.conditions for pair in pairs_of(found, levels)]
    return StagePlan(
        kind="replicate",
        question=words.question,
        design=design,
        predictions=words.predictions,
        decision_table=words.table,
        stop_rule=stop_rule(goal, DONE[goal.question.kind]),
        min_effect=effect_of(goal),
        attainable=attainable(
            goal,
            design="paired",
            family=family_of(goal, design),
            sd=paired_sd(pairs),
            number=number,
        ),
        why=f"Means so far: {means_text(analysis)}.",
        evidence=contrast_evidence(analysis),
    )


def family_of(goal: GoalSpec, design: tuple[DesignRow, ...]) -> int:
    """Tests of a stage on fresh seeds: both directions, and equivalence when it is asked, of every comparison within it."""
    question = goal.question
    count = 0
    for condition in goal.conditions:
        levels = {r.factors[question.factor] for r in design if _at(goal, r) == condition}
        if question.kind == "best":
            count += len(levels) * (len(levels) - 1) // 2
        elif question.kind == "comparison" or condition != goal.conditions[0]:
            count += len(levels - {goal.baseline})
    return max(1, count * (2 if goal.smallest_effect is None else 3))


def _at(goal: GoalSpec, row: DesignRow) -> object:
    across = goal.question.across
    return None if across is None else row.factors[across]


def conclusion(goal: GoalSpec, analysis: ContrastAnalysis, reason: EndReason) -> Conclusion:
    """What can be said, because of ``reason``."""
    if analysis.kind == "interaction":
        text = f"{analysis.reason[:1].upper()}{analysis.reason[1:]}."
        verdicts = (
            Verdict(condition=None, status=analysis.status, level=analysis.baseline, text=text),
        )
    else:
        verdicts = tuple(
            Verdict(
                condition=found.condition,
                status=found.status,
                level=found.leader,
                text=_where(goal, found.condition, found.reason),
            )
            for found in analysis.conditions
        )
    opening = END_TEXTS[reason]
    if reason == "answered" and (goal.question.across is None or analysis.kind == "interaction"):
        opening = "The question is settled."
    return Conclusion(
        reason=reason,
        text=" ".join([opening, *(v.text for v in verdicts)]),
        verdicts=verdicts,
        evidence=contrast_evidence(analysis),
    )


def _where(goal: GoalSpec, condition: object, reason: str) -> str:
    text = f"{reason[:1].upper()}{reason[1:]}."
    if goal.question.across is None:
        return text
    return f"At {goal.question.across} {scalar_text(condition)}: {reason}."  # pyright: ignore[reportArgumentType] - a level
