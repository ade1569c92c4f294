"""What the stages of a best level, a comparison or an interaction ask, predict and lead to: fixed before they run."""

from __future__ import annotations

from dataclasses import dataclass

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Outcome
from a3r.report.contrast_results import ContrastAnalysis
from a3r.report.numbers import scalar_text, signed

DONE = {
    "best": "the leader of every condition is shown above, or equivalent to, each rival that was repeated on fresh seeds",
    "comparison": "every level that was repeated on fresh seeds is shown to differ from the baseline or to be equivalent to it",
    "interaction": "the effect is shown to differ between conditions, or to be equivalent",
}


@dataclass(frozen=True)
class Words:
    """Of one stage."""

    question: str
    predictions: tuple[str, ...]
    table: tuple[Outcome, ...]


def first_words(goal: GoalSpec) -> Words:
    """Of the first look."""
    factor, across = goal.question.factor, goal.question.across
    if goal.question.kind == "best":
        return _first_best(factor)
    if goal.question.kind == "comparison":
        baseline = scalar_text(goal.baseline)
        return Words(
            f"How do the levels of {factor} look beside the baseline {baseline}?",
            (f"At least one level differs from {baseline}.",),
            (
                Outcome(
                    pattern="any",
                    conclusion="differences of a first look are candidates, no more",
                    next=f"repeat the baseline and the levels on fresh seeds, of more than {goal.criterion.rivals} those that "
                    "differ most",
                ),
            ),
        )
    return Words(
        f"How does what {factor} changes look at each level of {across}?",
        (f"The effect of {factor} is not the same at every level of {across}.",),
        (
            Outcome(
                pattern="any",
                conclusion="a difference between effects in a first look is a candidate, no more",
                next="repeat the four cells between which the effects differ most on fresh seeds",
            ),
        ),
    )


def _first_best(factor: str) -> Words:
    return Words(
        f"Which level of {factor} leads, and which come close?",
        ("The levels differ by more than seeds do.",),
        (
            Outcome(
                pattern="a number leads and a level beside it was not tested",
                conclusion="the best level may lie beside the leader",
                next="look there",
            ),
            Outcome(
                pattern="a level leads and its neighbours are tested",
                conclusion="it is a candidate, no more: the best of many looks is partly luck",
                next="repeat it and its nearest rivals on fresh seeds",
            ),
        ),
    )


def replicate_words(goal: GoalSpec, analysis: ContrastAnalysis) -> Words:
    """Of a stage on fresh seeds."""
    if goal.question.kind == "interaction":
        return _crossed(goal, analysis)
    return _compared(goal, analysis) if goal.question.kind == "comparison" else _led(goal, analysis)


def _equal(goal: GoalSpec) -> str:
    if goal.smallest_effect is None:
        return "no statement: the goal names no smallest effect"
    return f"equivalent within {goal.smallest_effect:g}"


def _compared(goal: GoalSpec, analysis: ContrastAnalysis) -> Words:
    return Words(
        f"Which levels of {goal.question.factor} differ from {scalar_text(goal.baseline)} on fresh seeds?",
        tuple(_predict_comparison(goal, analysis)),
        (
            Outcome(
                pattern="the interval of the paired difference lies on one side of zero and holds after correction",
                conclusion="the level is above, or below, the baseline",
                next="conclude",
            ),
            Outcome(
                pattern="both one-sided tests against the smallest effect hold after correction",
                conclusion=_equal(goal),
                next="conclude",
            ),
            Outcome(
                pattern="neither",
                conclusion="not shown to differ, which is not equality",
                next="conclude with this open",
            ),
        ),
    )


def _led(goal: GoalSpec, analysis: ContrastAnalysis) -> Words:
    return Words(
        f"Is the leading level of {goal.question.factor} above its rivals on fresh seeds?",
        tuple(_predict_best(goal, analysis)),
        (
            Outcome(
                pattern="the leader is shown above every rival",
                conclusion="it is the best of those repeated",
                next="conclude for this condition",
            ),
            Outcome(
                pattern="both one-sided tests against the smallest effect hold for the rivals that it is not shown above",
                conclusion=_equal(goal),
                next="conclude for this condition",
            ),
            Outcome(
                pattern="a level without fresh seeds looked better than what leads on fresh seeds",
                conclusion="the first look misled",
                next="repeat it beside the leader on further fresh seeds",
            ),
            Outcome(
                pattern="a rival is neither below nor equivalent",
                conclusion="no best level is shown",
                next="conclude with this open",
            ),
        ),
    )


def _crossed(goal: GoalSpec, analysis: ContrastAnalysis) -> Words:
    factor, across = goal.question.factor, goal.question.across
    looks = [f for f in analysis.interactions if f.first_look is not None]
    found = max(looks, key=lambda f: abs(f.first_look or 0.0), default=None)
    prediction = f"The effect of {factor} differs between levels of {across}."
    if found is not None:
        word = "higher" if (found.first_look or 0.0) > 0 else "lower"
        prediction = (
            f"What {factor} {scalar_text(found.level)} changes against {scalar_text(found.against)} is {word} at {across} "
            f"{scalar_text(found.condition)} than at {scalar_text(found.other)} (first look: {signed(found.first_look)})."
        )
    return Words(
        f"Does {across} change what {factor} does, on fresh seeds?",
        (prediction,),
        (
            Outcome(
                pattern="the interval of the difference between the effects lies on one side of zero and holds after correction",
                conclusion="the interaction is shown",
                next="conclude",
            ),
            Outcome(
                pattern="both one-sided tests against the smallest effect hold after correction",
                conclusion="no interaction that matters"
                if goal.smallest_effect is not None
                else "no statement: the goal names no smallest effect",
                next="conclude",
            ),
            Outcome(
                pattern="neither",
                conclusion="an interaction is not shown, which does not exclude it",
                next="conclude with this open",
            ),
        ),
    )


def _predict_best(goal: GoalSpec, analysis: ContrastAnalysis) -> list[str]:
    return [
        f"{_where(goal, found.condition)}{scalar_text(found.leader)} is above its rivals."
        for found in analysis.conditions
        if found.leader is not None
    ]


def _predict_comparison(goal: GoalSpec, analysis: ContrastAnalysis) -> list[str]:
    out: list[str] = []
    for found in analysis.conditions:
        for c in found.contrasts:
            if c.first_look is not None:
                word = "above" if c.first_look > 0 else "below"
                where, level = _where(goal, found.condition), scalar_text(c.level)
                out.append(
                    f"{where}{level} is {word} the baseline (first look: {signed(c.first_look)})."
                )
    return out


def _where(goal: GoalSpec, condition: object) -> str:
    across = goal.question.across
    return "" if across is None else f"at {across} {condition}: "
