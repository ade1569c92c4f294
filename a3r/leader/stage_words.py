"""Phrases that the plans of every question share."""

from __future__ import annotations

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import EndReason

END_TEXTS: dict[EndReason, str] = {
    "answered": "Every condition is settled.",
    "exhausted": "No cell is left that could settle what is open.",
    "max_stages": "The budget's number of stages is used up.",
    "max_runs": "The next stage would not fit into the budget's number of runs.",
    "wall_clock": "The budget's wall clock is used up.",
    "gpu_hours": "The budget's GPU hours are used up, or the next stage would not fit into them.",
    "llm_budget": "The budget for the language model is used up, so no further stage was planned.",
    "planner": "The planner ended the study here, although something could still be settled.",
    "stopped": "A person stopped the campaign.",
    "no_data": "No run has a result.",
}


def stop_rule(goal: GoalSpec, done: str) -> str:
    """When the campaign ends: ``done``, or a limit of its budget."""
    limits = [f"{goal.budget.max_stages} stages"]
    if goal.budget.max_runs is not None:
        limits.append(f"{goal.budget.max_runs} runs")
    if goal.budget.wall_clock_min is not None:
        limits.append(f"{goal.budget.wall_clock_min:g} minutes")
    if goal.budget.gpu_hours is not None:
        limits.append(f"{goal.budget.gpu_hours:g} GPU hours")
    return f"Stop when {done}; or at {', '.join(limits)}, and then say what stayed open."
