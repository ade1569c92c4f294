"""Somebody asked the campaign to stop: end what runs, say what was left undone, and go to a partial report."""

from __future__ import annotations

from a3r.core.types import TERMINAL_ATTEMPTS, RunState, StageState
from a3r.leader.planning import end_with
from a3r.leader.tick import Tick

REASON = "the campaign was stopped"


def wind_down(tick: Tick) -> bool:
    """Cancel what is queued, ask workers to stop the rest, and conclude once nothing is under way."""
    work = tick.store.pending_work(tick.id)
    live = [
        attempt
        for state, found in work.attempts_by_state.items()
        if state not in TERMINAL_ATTEMPTS
        for attempt in found
    ]
    asked = [a for a in live if a.stop_reason is None]
    for attempt in asked:
        tick.store.request_attempt_stop(attempt.id, REASON, tick.now)
    if live:
        return bool(
            asked
        )  # queued ones are gone with the next look, the others when their worker says so
    for run in work.runs_without_live_attempt:
        tick.store.set_run_state(run.id, RunState.CANCELLED, reason=REASON)
    stage = tick.open_stage()
    if stage is not None:
        tick.store.set_stage_state(stage.id, StageState.ABANDONED)
    return end_with(tick, "stopped")
