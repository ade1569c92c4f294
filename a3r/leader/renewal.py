"""A stage whose runs are all over, and whose client was mended in between: which of them are run again before it is analysed.

Runs that succeeded before their client was repaired, once a run of the repaired one has succeeded: two revisions of a client are not
pooled in one cell (``a3r.report.cell_clients``), so a repair in the middle of a stage would cost the cell the seeds that came first.
No result is looked at: every run of the earlier revision is run again, or none is. And runs that had failed before a repair came,
which a person's resume had asked for anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from a3r.core.types import ReviewStatus, RunState
from a3r.leader.clients.remedy import BY, Next, after_failure
from a3r.leader.tick import Tick
from a3r.store.rows import BlueprintRow, RunRow


def renew(tick: Tick, blueprints: Sequence[BlueprintRow], runs: Sequence[RunRow]) -> Next:
    """Open runs of a stage again where its client was mended.

    RETRY: some were opened. WAIT: a repair is under way. AS_BEFORE: nothing is to be done. For a stage whose runs are all over,
    while its budgets last: a run without budget would only lose what its records show.
    """
    approved = {b.id: b for b in blueprints if b.review is ReviewStatus.APPROVED}
    failed = [r for r in runs if r.state is RunState.FAILED and r.blueprint_id in approved]
    remedies = {
        run.id: after_failure(tick, approved[run.blueprint_id], tick.store.attempts_of_run(run.id))
        for run in failed
    }
    mended = [run for run in failed if remedies[run.id] is Next.RETRY]
    for run in mended:
        tick.store.retry_run(run.id, BY, tick.now, actor="leader")
    if mended:
        return Next.RETRY
    return Next.WAIT if Next.WAIT in remedies.values() else _renew_succeeded(tick, approved, runs)


def _renew_succeeded(tick: Tick, approved: Collection[str], runs: Sequence[RunRow]) -> Next:
    revised = {r.blueprint_id for r in tick.store.revisions(tick.id)}
    found = [
        run
        for blueprint_id in approved
        if blueprint_id in revised
        for run in _earlier(tick, [r for r in runs if r.blueprint_id == blueprint_id])
    ]
    for run in found:
        tick.store.renew_run(run.id, tick.now)
    return Next.RETRY if found else Next.AS_BEFORE


def _earlier(tick: Tick, runs: Sequence[RunRow]) -> list[RunRow]:
    """Those that succeeded with an earlier revision than the newest one that any of them succeeded with."""
    ran = {
        run.id: tick.store.attempt(run.accepted_attempt).revision
        for run in runs
        if run.state is RunState.SUCCEEDED and run.accepted_attempt is not None
    }
    newest = max(ran.values(), default=0)
    return [run for run in runs if ran.get(run.id, newest) < newest]
