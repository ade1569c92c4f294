"""The goal as data: what ``goal.md``'s front matter says, validated and normalised.

Reading a file into it is ``goal_parsing``, which asks ``goal_text`` for the lines and ``goal_rules`` for what the words mean together.
"""

from __future__ import annotations

from typing import Literal, cast

from pydantic import Field, JsonValue, field_validator

from a3r.blueprints.model import StopRule
from a3r.core.types import ReviewMode
from a3r.leader.factors import Scalar, path_of
from a3r.leader.goal_sections import (
    Budget,
    Criterion,
    Factor,
    Metric,
    Question,
    Section,
    Seeds,
)


class GoalSpec(Section):
    """A goal that the leader can pursue."""

    name: str = Field(min_length=1, max_length=80)
    question: Question
    task: str
    """A shipped task; with a language model also a name of your own, whose client is written from the prose or ``code``."""
    model: str
    """``builtin:<name>``, or a folder in Hugging Face layout (relative to the goal's folder)."""
    factors: dict[str, Factor]
    metric: Metric
    criterion: Criterion = Criterion()
    smallest_effect: float | None = Field(default=None, gt=0.0)
    """Smallest difference of the metric that matters: two cells closer than that can be shown to be equivalent. None: no such
    verdict."""
    settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Settings by known name or dotted path (``a3r.leader.factors``); the same in every run."""
    evaluations: tuple[int, ...] = ()
    """Steps after which a further held-out round is played (``step-20`` or 20); training waits for it. Shown, never decided by."""
    stop_rules: tuple[StopRule, ...] = ()
    """When a run ends early; part of every blueprint, so approved before anything ran."""
    constraints: tuple[str, ...] = ()
    """Demands in words; the report says of each what became of it."""
    seeds: Seeds = Seeds()
    budget: Budget = Budget()
    capacity: int = Field(default=2, ge=1, le=10_000)
    """Attempts at once."""
    planner: Literal["sweep", "llm"] = "sweep"
    review: ReviewMode = ReviewMode.STAGE
    code: str = ""
    """Folder of your own code base (relative to the goal's folder); read, never changed."""
    reference: tuple[str, ...] = ()
    """Files, folders or addresses that the client shall follow: a tutorial, an example."""
    write_to: str = ""
    """The one folder that written code is also put into; empty: it stays in the workspace."""
    python: str = ""
    """Interpreter of the client's processes: a path, or a command's name; empty: the worker's own."""
    pilot: str = ""
    """How the settings were chosen; printed in the report."""

    @field_validator("name", mode="after")
    @classmethod
    def _shows(cls, name: str) -> str:
        # It stands in terminals, in reports and in commands.
        if not name.strip() or not name.isprintable():
            msg = "a name needs characters that show, on one line"
            raise ValueError(msg)
        return name

    @field_validator("evaluations", mode="before")
    @classmethod
    def _steps(cls, value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return value
        found = cast("list[object] | tuple[object, ...]", value)
        return [x.removeprefix("step-") if isinstance(x, str) else x for x in found]

    @field_validator("reference", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) and value else value

    @property
    def levels(self) -> tuple[Scalar, ...]:
        """Levels of the questioned factor, ascending."""
        return self.factors[self.question.factor].levels

    @property
    def conditions(self) -> tuple[Scalar | None, ...]:
        """Levels of the ``across`` factor in order; ``(None,)`` without one."""
        across = self.question.across
        return (None,) if across is None else self.factors[across].levels

    @property
    def baseline(self) -> Scalar:
        """The level that others are compared with: the named one, else the first."""
        named = self.question.baseline
        return self.levels[0] if named is None else named

    def place_of(self, factor: str) -> str | None:
        """The path that a factor sets; None when it stands for several (its levels are sets of settings) or for nothing known."""
        return path_of(self.factors[factor].path or factor)

    def assigned(self, factors: dict[str, Scalar]) -> dict[str, JsonValue]:
        """Path -> value of a cell's factors; a name that stands for nothing known is left as it is."""
        out: dict[str, JsonValue] = {}
        for name, level in factors.items():
            value, place = self.factors[name].value(level), self.place_of(name)
            if place is None and isinstance(value, dict):
                out |= {path_of(key) or key: part for key, part in value.items()}
            else:
                out[place or name] = value
        return out

    def cell(self, level: Scalar, condition: Scalar | None) -> dict[str, Scalar]:
        """The factors of one cell, in the order of the goal's factors."""
        values = {self.question.factor: level}
        if self.question.across is not None and condition is not None:
            values[self.question.across] = condition
        return {name: values[name] for name in self.factors if name in values}
