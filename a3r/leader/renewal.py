"""Runs that succeeded before their client was repaired are run again with the repaired one, once a run of it has succeeded.

Two revisions of a client are not pooled in one cell (``a3r.report.cell_clients``): without this, a repair in the middle of a stage
would cost the cell the seeds that came first. No result is looked at: every run of the earlier revision is run again, or none is.
"""

from __future__ import annotations

from collections.abc import Sequence

from a3r.core.types import ReviewStatus, RunState
from a3r.leader.tick import Tick
from a3r.store.rows import BlueprintRow, RunRow


def renew(tick: Tick, blueprints: Sequence[BlueprintRow], runs: Sequence[RunRow]) -> bool:
    """Open the runs of a stage again whose result is an earlier client's than that of their blueprint's others; True when any was.

    For a stage whose runs are all over, while its budgets last: a run without budget would only lose what its records show.
    """
    revised = {r.blueprint_id for r in tick.store.revisions(tick.id)}
    found = [
        run
        for blueprint in blueprints
        if blueprint.id in revised and blueprint.review is ReviewStatus.APPROVED
        for run in _earlier(tick, [r for r in runs if r.blueprint_id == blueprint.id])
    ]
    for run in found:
        tick.store.renew_run(run.id, tick.now)
    return bool(found)


def _earlier(tick: Tick, runs: Sequence[RunRow]) -> list[RunRow]:
    """Those that succeeded with an earlier revision than the newest one that any of them succeeded with."""
    ran = {
        run.id: tick.store.attempt(run.accepted_attempt).revision
        for run in runs
        if run.state is RunState.SUCCEEDED and run.accepted_attempt is not None
    }
    newest = max(ran.values(), default=0)
    return [run for run in runs if ran.get(run.id, newest) < newest]
