"""What a language model may propose for a stage: choices from closed lists, no sentences and no numbers of its own.

Seeds, run counts, budgets and what the stage can show are code's (``a3r.leader.llm_planner.rails``), and so is every sentence
that ends up in the plan (``words``).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from a3r.leader.factors import Scalar

Purpose = Literal["explore", "confirm"]
"""explore: look at cells that have no result. confirm: repeat cells that have one, on fresh seeds; only that supports claims."""
Expectation = Literal[
    "above_criterion",
    "below_criterion",
    "near_criterion",
    "higher_than_other",
    "lower_than_other",
    "same_as_other",
]
When = Literal[
    "all_predictions_hold",
    "some_predictions_fail",
    "no_prediction_holds",
    "results_missing",
    "cell_above_criterion",
    "cell_below_criterion",
    "cell_unclear",
]
Next = Literal[
    "confirm_on_fresh_seeds",
    "explore_between",
    "explore_higher",
    "explore_lower",
    "explore_other_condition",
    "repair_and_repeat",
    "conclude",
]


class Proposed(BaseModel):
    """A frozen part; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Cell = dict[str, Scalar]
"""Each factor of the goal with one of its levels."""


class Prediction(Proposed):
    """What is expected of one cell of the stage, written down before it runs."""

    cell: Cell
    expects: Expectation
    other: Cell | None = None
    """The cell compared with; needed by ``..._than_other`` and ``same_as_other``."""


class DecisionRow(Proposed):
    """One line of the decision table."""

    when: When
    cell: Cell | None = None
    """Needed by ``cell_...``."""
    next: Next


class StageProposal(Proposed):
    """The next stage."""

    purpose: Purpose
    cells: tuple[Cell, ...] = Field(min_length=1)
    predictions: tuple[Prediction, ...] = Field(min_length=1)
    decision_table: tuple[DecisionRow, ...] = Field(min_length=2)
    rationale: str = ""
    """Why these cells, in at most 400 characters without digits, number words, names of factors or conditions, or verdicts;
    shown as the planner's own words. Empty: nothing is shown."""


class PlanAnswer(Proposed):
    """How a planning session ends."""

    action: Literal["stage", "finish"]
    """stage: run ``stage``, or the one that was accepted by the tool. finish: nothing more is worth running."""
    stage: StageProposal | None = None
    rationale: str = ""
    """Of a ``finish``: why, under the same rules as a stage's."""
