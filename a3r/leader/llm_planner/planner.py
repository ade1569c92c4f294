"""The planner that asks a language model. It only files jobs and admits their results: a tick never waits for a model."""

from __future__ import annotations

from typing import Any, Protocol

from a3r.core.errors import JobFailed
from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.proposal import StageProposal
from a3r.leader.llm_planner.rails import admit
from a3r.leader.llm_planner.reach import rooms
from a3r.leader.plan import Conclusion, EndReason, Pending, StagePlan
from a3r.leader.sweep import SweepPlanner
from a3r.report.records import Records

MONEY = "budget_spent"


class Desktop(Protocol):
    """What the planner needs of a tick."""

    def result_of(
        self, kind: str, subject: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """See ``a3r.leader.tick.Tick``."""
        ...

    def decide_once(
        self, stage_id: str | None, what: str, why: str, evidence: dict[str, Any]
    ) -> bool:
        """See ``a3r.leader.tick.Tick``."""
        ...


class LlmPlanner:
    """See the module. Statistics, verdicts and conclusions are those of the sweep planner: a model has no part in them."""

    name = "llm"

    def __init__(self, tick: Desktop) -> None:
        self._tick = tick

    def next(self, goal: GoalSpec, records: Records) -> StagePlan | Conclusion | Pending:
        """The next stage, the conclusion, or that a job works it out.

        Raises:
            JobFailed: no usable reply; the campaign is blocked until a person resumes it.
        """
        left = rooms(goal, records)
        if left["stages"] == 0:
            return self.conclude(goal, records, "max_stages")
        if left["runs"] == 0:
            return self.conclude(goal, records, "max_runs")
        number = len(records.stages) + 1
        try:
            result = self._tick.result_of("plan", str(number))
        except JobFailed as error:
            if error.details.get("reason") == MONEY:
                return self.conclude(goal, records, "llm_budget")
            raise
        if result is None:
            return Pending(detail=f"the language model plans stage {number}")
        self._keep_notes(records, number, result)
        if result["action"] == "finish":
            return self._finished(goal, records)
        return self._admitted(goal, records, result)

    def conclude(self, goal: GoalSpec, records: Records, reason: EndReason) -> Conclusion:
        """What the records say, because of ``reason``."""
        return SweepPlanner().conclude(goal, records, reason)

    def _finished(self, goal: GoalSpec, records: Records) -> Conclusion:
        """Answered when code says so too; else the planner's own wish, which is told as that."""
        found = SweepPlanner().next(goal, records) if records.stages else None
        return found if isinstance(found, Conclusion) else self.conclude(goal, records, "planner")

    def _admitted(self, goal: GoalSpec, records: Records, result: dict[str, Any]) -> StagePlan:
        """The job's proposal, through the rails once more: what is recorded is what is run."""
        found = admit(goal, records, StageProposal.model_validate(result["proposal"]))
        if found.plan is None:
            raise JobFailed(
                f"the stage that was proposed and accepted may not run any more ({len(found.faults)} fault(s))",
                hint="'a3r campaign stop' ends with a report of what is there.",
                faults=found.faults,
            )
        return found.plan

    def _keep_notes(self, records: Records, number: int, result: dict[str, Any]) -> None:
        stage = records.stages[-1].id if records.stages else None
        notes: list[dict[str, str]] = list(result.get("notes") or ())
        for note in notes:
            what = f"note before stage {number} ({note['about'].replace('_', ' ')})"
            why = f'The planner\'s own words: "{note["text"]}"'
            self._tick.decide_once(stage, what, why, {"about": note["about"]})
