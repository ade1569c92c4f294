"""The goal as data: what ``goal.md``'s front matter says, validated and normalised.

Reading the file and finding the line of a mistake is ``goal_text``; what the words mean together is ``goal_rules``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from a3r.core.errors import GoalError
from a3r.core.types import Direction, ReviewMode
from a3r.leader.factors import Scalar


class Section(BaseModel):
    """A frozen part of the goal; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Question(Section):
    """What is asked."""

    kind: Literal["minimum"]
    """minimum: the smallest level of ``factor`` that still trains."""
    factor: str
    across: str | None = None
    """Asked once for each level of this factor; None: asked once."""


class Factor(Section):
    """A factor's levels, ascending; a ``range`` is turned into levels when it is read."""

    levels: tuple[Scalar, ...]

    @model_validator(mode="before")
    @classmethod
    def _expand_range(cls, value: object) -> object:
        if isinstance(value, dict) and "range" in value:
            return {"levels": FactorRange.model_validate(value).levels()}
        return cast("object", value)

    @field_validator("levels", mode="after")
    @classmethod
    def _ascending(cls, levels: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        if len(set(levels)) != len(levels):
            msg = "a level occurs twice"
            raise ValueError(msg)
        if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in levels):
            return tuple(sorted(levels, key=lambda x: float(x)))
        return levels


class FactorRange(Section):
    """Levels by their ends: ``{range: [1, 64], scale: log2}``."""

    range: tuple[int, int]
    scale: Literal["log2", "linear"] = "log2"
    step: int = Field(default=1, ge=1)
    """Distance of two levels of a linear scale."""

    @model_validator(mode="after")
    def _in_order(self) -> FactorRange:
        low, high = self.range
        if not 1 <= low < high:
            msg = "a range needs two whole numbers, the smaller (at least 1) first"
            raise ValueError(msg)
        return self

    def levels(self) -> tuple[int, ...]:
        """Every level, both ends included: doublings of the lower end, or steps."""
        low, high = self.range
        found = [low]
        while found[-1] < high:
            found.append(
                min(high, found[-1] * 2 if self.scale == "log2" else found[-1] + self.step)
            )
        return tuple(found)


class Metric(Section):
    """The primary metric."""

    name: Literal["held_out_reward"] = "held_out_reward"
    direction: Direction = Direction.MAXIMIZE
    items: int = Field(default=300, ge=10, le=5000)
    """Held-out items of one evaluation."""


class Criterion(Section):
    """When a cell trains.

    On fresh seeds, the lower bound of the t interval of its gain lies above ``min_gain``, and the one-sided p, Holm-adjusted
    over every confirmatory cell of the campaign, is below ``1 - confidence`` (``a3r.report.analysis`` decides).
    """

    min_gain: float = Field(default=0.05, ge=0.0, lt=1.0)
    """Of the metric, final minus version 0."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Family-wise, over every confirmatory cell of the campaign."""


class Seeds(Section):
    """Replicates of a cell by stage."""

    coarse: int = Field(default=2, ge=1)
    refine: int = Field(default=2, ge=1)
    replicate: int = Field(default=4, ge=2)
    """Fresh seeds, used by no earlier run of the cell."""
    first: int = Field(default=1, ge=0)

    @property
    def first_fresh(self) -> int:
        """The first seed number that only replicate stages use."""
        return self.first + max(self.coarse, self.refine)


class Budget(Section):
    """Where the campaign ends though the question is open; the report then says so."""

    wall_clock_min: float | None = Field(default=None, gt=0)
    """Minutes of work, waiting for people left out; None: no limit."""
    max_stages: int = Field(default=6, ge=1)
    max_runs: int | None = Field(default=None, ge=1)
    """Planned runs (blueprint x seed); None: no limit."""


class GoalSpec(Section):
    """A goal that the leader can pursue."""

    name: str = Field(min_length=1, max_length=80)
    question: Question
    task: str
    model: str
    """``builtin:<name>``, or a folder in Hugging Face layout (relative to the goal's folder)."""
    factors: dict[str, Factor]
    metric: Metric
    criterion: Criterion = Criterion()
    settings: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])
    """Training settings by known name or dotted path; the same in every run."""
    seeds: Seeds = Seeds()
    budget: Budget = Budget()
    capacity: int = Field(default=2, ge=1)
    """Attempts at once."""
    planner: Literal["sweep"] = "sweep"
    review: ReviewMode = ReviewMode.STAGE
    pilot: str = ""
    """How the settings were chosen; printed in the report."""

    @property
    def levels(self) -> tuple[Scalar, ...]:
        """Levels of the questioned factor, ascending."""
        return self.factors[self.question.factor].levels

    @property
    def conditions(self) -> tuple[Scalar | None, ...]:
        """Levels of the ``across`` factor in order; ``(None,)`` without one."""
        across = self.question.across
        return (None,) if across is None else self.factors[across].levels

    def cell(self, level: Scalar, condition: Scalar | None) -> dict[str, Scalar]:
        """The factors of one cell, in the order of the goal's factors."""
        values = {self.question.factor: level}
        if self.question.across is not None and condition is not None:
            values[self.question.across] = condition
        return {name: values[name] for name in self.factors if name in values}


def parse_goal(text: str, path: Path) -> GoalSpec:
    """Read a goal's text; ``path`` is where it lies (for messages, and for a model folder named in it).

    Raises:
        GoalError: everything that is wrong, one mistake a line, with its line number where it has one; ``details["mistakes"]`` lists them.
    """
    from a3r.leader.goal_rules import find_mistakes  # noqa: PLC0415 - the rules import this module
    from a3r.leader.goal_text import mistakes_error, read_front_matter, validated  # noqa: PLC0415

    front = read_front_matter(text, path)
    spec = validated(front, path)
    mistakes = find_mistakes(spec, path.parent)
    if mistakes:
        raise mistakes_error(path, [front.placed(m) for m in mistakes])
    return spec


def read_goal(path: Path) -> GoalSpec:
    """Read ``goal.md`` (or the folder that holds one).

    Raises:
        GoalError: no such file, not UTF-8, or see ``parse_goal``.
    """
    return parse_goal(goal_text(path), goal_file(path))


def goal_file(path: Path) -> Path:
    """``path``, or its ``goal.md`` when it is a folder."""
    return path / "goal.md" if path.is_dir() else path


def goal_text(path: Path) -> str:
    """The goal's text.

    Raises:
        GoalError: no such file, no permission, or not UTF-8.
    """
    file = goal_file(path)
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise GoalError(
            f"The goal {str(file)!r} can not be read: {error.strerror}.",
            hint="Give the path of a goal.md, or of the folder that holds one.",
        ) from error
    except UnicodeDecodeError as error:
        raise GoalError(
            f"The goal {str(file)!r} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}.",
            hint="Save the file as UTF-8.",
        ) from error
