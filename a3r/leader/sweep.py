"""The sweep planner: coarse, refine, replicate, conclude; without a language model, and the same plan for the same records.

One planner for every kind of question: a first look over the grid, a closer one where it matters, then fresh seeds for what would
be claimed, until everything is settled or a limit ends it. ``sweep_minimum`` and ``sweep_contrast`` know the stages; what results
mean is decided in ``a3r.report.analysis`` only.
"""

from __future__ import annotations

from a3r.leader import sweep_contrast, sweep_minimum
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Conclusion, EndReason, StagePlan
from a3r.leader.spending import gpu_hours_for
from a3r.leader.stage_words import END_TEXTS
from a3r.report.analysis import Analysis, analyse
from a3r.report.no_result import no_result, no_result_text
from a3r.report.records import Records
from a3r.report.results import MinimumAnalysis

__all__ = ["END_TEXTS", "SweepPlanner"]


class SweepPlanner:
    """See the module."""

    name = "sweep"

    def next(self, goal: GoalSpec, records: Records) -> StagePlan | Conclusion:
        """The next stage, or the conclusion. Pure."""
        if not records.stages:
            stages = sweep_minimum if goal.question.asks_minimum else sweep_contrast
            return self._fitting(goal, records, stages.first_stage(goal))
        analysis = analyse(records)
        if not _has_data(analysis):
            return _without_data(goal, analysis, records)
        if isinstance(analysis, MinimumAnalysis):
            found = sweep_minimum.next_stage(goal, analysis, records)
        else:
            found = sweep_contrast.next_stage(goal, analysis, records)
        return found if isinstance(found, Conclusion) else self._fitting(goal, records, found)

    def conclude(self, goal: GoalSpec, records: Records, reason: EndReason) -> Conclusion:
        """What can be said now, because of ``reason``. Pure."""
        return _conclusion(goal, analyse(records), reason)

    def _fitting(self, goal: GoalSpec, records: Records, plan: StagePlan) -> StagePlan | Conclusion:
        """The plan when the budget allows it, else the conclusion that it does not."""
        reason = over_budget(goal, records, plan)
        return plan if reason is None else self.conclude(goal, records, reason)


def over_budget(goal: GoalSpec, records: Records, plan: StagePlan) -> EndReason | None:
    """Which limit the stage would break; None when it fits."""
    if len(records.stages) >= goal.budget.max_stages:
        return "max_stages"
    planned = sum(len(b.seeds) for b in records.blueprints)
    limit = goal.budget.max_runs
    if limit is not None and planned + plan.runs > limit:
        return "max_runs"
    hours = goal.budget.gpu_hours
    if hours is not None and gpu_hours_for(goal, records, plan) > hours:
        return "gpu_hours"
    return None


def _has_data(analysis: Analysis) -> bool:
    return any(cell.gains for found in analysis.conditions for cell in found.cells)


def _without_data(goal: GoalSpec, analysis: Analysis, records: Records) -> Conclusion:
    """What failed and why takes the place of the bare sentence; the verdicts say what stays open."""
    found, told = _conclusion(goal, analysis, "no_data"), no_result(records)
    if told is None:
        return found
    text = found.text.replace(END_TEXTS["no_data"], no_result_text(told), 1)
    return found.model_copy(update={"text": text})


def _conclusion(goal: GoalSpec, analysis: Analysis, reason: EndReason) -> Conclusion:
    if isinstance(analysis, MinimumAnalysis):
        return sweep_minimum.conclusion(goal, analysis, reason)
    return sweep_contrast.conclusion(goal, analysis, reason)
