"""What a campaign has spent of its GPU hours, and what a stage would add. The language model's budget is the desk's."""

from __future__ import annotations

from collections.abc import Iterable

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import StagePlan
from a3r.leader.training import cell_settings
from a3r.report.records import AttemptRecord, Records
from a3r.store.rows import REUSED, AttemptRow


def gpu_hours(records: Records) -> float:
    """Hours that finished attempts held GPUs, times the GPUs of each; an attempt under way counts when it ends."""
    attempts = (a for run in records.runs for a in run.attempts)
    return sum(_hours(a) * len(a.placement.get("gpus") or ()) for a in attempts if not a.reused)


def gpu_hours_held(attempts: Iterable[AttemptRow], now: float) -> float:
    """The same from the database, with what attempts under way have held until ``now``."""
    total = 0.0
    for attempt in attempts:
        if attempt.leased_at is None or REUSED in attempt.summary:
            continue
        ended = now if attempt.ended_at is None else attempt.ended_at
        total += max(0.0, ended - attempt.leased_at) * len(attempt.placement.get("gpus") or ())
    return total / 3600


def gpu_hours_for(goal: GoalSpec, records: Records, plan: StagePlan) -> float:
    """Spent so far plus what the stage would take, at the mean length of the accepted attempts; 0 more while none has ended."""
    lengths = [
        _hours(a) for run in records.runs if (a := run.accepted()) is not None and not a.reused
    ]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    gpus = sum(
        cell_settings(goal, row.factors).resources.gpus * len(row.seeds) for row in plan.design
    )
    return gpu_hours(records) + mean * gpus


def _hours(attempt: AttemptRecord) -> float:
    if attempt.started_at is None or attempt.finished_at is None:
        return 0.0
    return max(0.0, attempt.finished_at - attempt.started_at) / 3600
