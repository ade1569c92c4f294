"""What a planner returns: the next stage, written down before it runs, or the campaign's conclusion."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.report.records import Records
from a3r.report.results import Status


class Section(BaseModel):
    """A frozen part of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DesignRow(Section):
    """One cell of the stage's design."""

    factors: dict[str, Scalar]
    seeds: tuple[int, ...]
    reason: str = ""
    """Why this cell, in words."""


class Outcome(Section):
    """One line of the decision table: preregistered, so that what follows is not chosen after the fact."""

    pattern: str
    conclusion: str
    next: str


class Attainable(Section):
    """What the stage can show at best."""

    alpha: float
    """Of a confirming stage: its part of the family-wise alpha (``a3r.report.family``). Of the others: the whole."""
    family: int
    """Tests of this stage, which share ``alpha``; 0 for a screening stage, which confirms nothing."""
    n: int
    """Seeds a cell."""
    sd: float | None
    """Between seeds, pooled over the cells seen so far; None: nothing known yet."""
    smallest_gain: float | None
    """Smallest mean gain above ``min_effect`` (of comparisons: smallest difference) that can be confirmed at that spread; None:
    unknown, or nothing is confirmed."""
    power: float | None = None
    """Chance to show the smallest effect that matters, 0 to 1; None: unknown, or nothing is confirmed."""
    seeds_needed: int | None = None
    """A cell, to show it in 80 of 100 campaigns; None: unknown, or more than could be paid for."""
    note: str = ""
    """The same in words."""


class StagePlan(Section):
    """One stage."""

    kind: Literal["coarse", "refine", "explore", "replicate"]
    """replicate: confirms on fresh seeds. The others explore."""
    question: str
    design: tuple[DesignRow, ...]
    predictions: tuple[str, ...]
    decision_table: tuple[Outcome, ...]
    stop_rule: str
    min_effect: float
    attainable: Attainable
    why: str = ""
    """On which evidence this stage follows the one before, in words."""
    evidence: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The numbers behind ``why``."""

    @property
    def runs(self) -> int:
        """Blueprint x seed."""
        return sum(len(row.seeds) for row in self.design)


class Verdict(Section):
    """What the campaign may say of one condition (``a3r.report.results.ConditionAnalysis``)."""

    condition: Scalar | None
    status: Status
    level: Scalar | None
    """The claimed minimum, the leading level, the baseline; None when there is none."""
    text: str


EndReason = Literal[
    "answered",
    "exhausted",
    "max_stages",
    "max_runs",
    "wall_clock",
    "gpu_hours",
    "llm_budget",
    "planner",
    "stopped",
    "no_data",
]
"""answered: every condition is settled. exhausted: nothing more can be tried, and some condition stays open. planner: the planner
wished to end here although something stays open."""


class Conclusion(Section):
    """No further stage. Whether that is an answer stands in ``verdicts``."""

    reason: EndReason
    text: str
    verdicts: tuple[Verdict, ...]
    evidence: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def complete(self) -> bool:
        """False when a limit, a person or missing data ended it."""
        return self.reason in ("answered", "exhausted")


class Pending(Section):
    """The planner needs something that takes longer than a tick may; a job is doing it. Ask again later."""

    detail: str
    """What is being waited for, in words."""


class Planner(Protocol):
    """Decides what comes next from what is recorded alone, so that a crash replays to the same plan."""

    name: str

    def next(self, goal: GoalSpec, records: Records) -> StagePlan | Conclusion | Pending:
        """The next stage, the conclusion, or that it is being worked out."""
        ...

    def conclude(
        self,
        goal: GoalSpec,
        records: Records,
        reason: EndReason,
    ) -> Conclusion:
        """What can be said when no further stage may run."""
        ...
