"""Sentences of a stage's plan, written by code from the choices of a proposal."""

from __future__ import annotations

from collections.abc import Callable

from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.proposal import (
    Cell,
    DecisionRow,
    Expectation,
    Next,
    Prediction,
    StageProposal,
    When,
)
from a3r.leader.plan import Outcome
from a3r.report.numbers import scalar_text, signed

_EXPECTS: dict[Expectation, Callable[[str, str, str], str]] = {
    "above_criterion": lambda cell, _, bar: f"{cell}: {bar} is exceeded",
    "below_criterion": lambda cell, _, bar: f"{cell}: {bar} is not reached",
    "near_criterion": lambda cell, _, bar: f"{cell}: close to {bar}",
    "higher_than_other": lambda cell, other, _: f"{cell}: higher than at {other}",
    "lower_than_other": lambda cell, other, _: f"{cell}: lower than at {other}",
    "same_as_other": lambda cell, other, _: f"{cell}: no difference from {other} that matters",
}
_WHEN: dict[When, tuple[str, str]] = {
    "all_predictions_hold": ("every prediction of this stage holds", "the picture so far stands"),
    "some_predictions_fail": (
        "some prediction of this stage does not hold",
        "the picture so far is wrong in part",
    ),
    "no_prediction_holds": ("no prediction of this stage holds", "the picture so far is wrong"),
    "results_missing": ("a cell of this stage has no result", "nothing is known about that cell"),
    "cell_above_criterion": ("{cell} exceeds {bar}", "{cell} may train"),
    "cell_below_criterion": ("{cell} does not reach {bar}", "{cell} may not train"),
    "cell_unclear": ("{cell} is close to {bar}", "{cell} stays open"),
}
_NEXT: dict[Next, str] = {
    "confirm_on_fresh_seeds": "repeat the cells that matter on fresh seeds",
    "explore_between": "look at untested levels in between",
    "explore_higher": "look at higher levels",
    "explore_lower": "look at lower levels",
    "explore_other_condition": "look at another condition",
    "repair_and_repeat": "find out why, repair, and repeat",
    "conclude": "conclude",
}


def cell_text(cell: Cell) -> str:
    """``train_batch_size 4, max_response_tokens 10``."""
    return ", ".join(f"{name} {scalar_text(value)}" for name, value in cell.items())


def question_text(proposal: StageProposal) -> str:
    """The stage's question."""
    cells = "; ".join(cell_text(cell) for cell in proposal.cells)
    if proposal.purpose == "confirm":
        return f"Do the results so far hold on fresh seeds at {cells}?"
    return f"What is the held-out result at {cells}?"


def prediction_text(goal: GoalSpec, prediction: Prediction) -> str:
    """One prediction, as a prediction."""
    other = cell_text(prediction.other) if prediction.other else ""
    text = _EXPECTS[prediction.expects](cell_text(prediction.cell), other, bar_text(goal))
    return f"Predicted at {text}."


def outcome(goal: GoalSpec, row: DecisionRow) -> Outcome:
    """One line of the decision table."""
    pattern, conclusion = _WHEN[row.when]
    names = {"cell": cell_text(row.cell) if row.cell else "", "bar": bar_text(goal)}
    return Outcome(
        pattern=pattern.format(**names), conclusion=conclusion.format(**names), next=_NEXT[row.next]
    )


def bar_text(goal: GoalSpec) -> str:
    """The criterion, as a thing to exceed."""
    return f"the criterion (a gain of {signed(goal.criterion.min_gain)})"
