"""When an attempt has taken too long. Pure; "progress" is the server's step, never the log."""

from __future__ import annotations

from a3r.blueprints.model import Limits
from a3r.core.types import FailureClass
from a3r.worker.folder import Memo

EVALUATION_GRACE_S = 15.0
"""The evaluator has its own deadline and should be the first to tell."""


LEAST_EVALUATION_S = 30.0
"""A round takes two processes to start, whatever the deadline of a step is."""


def evaluation_limit_s(limits: Limits) -> float:
    """How long one round may take."""
    return max(LEAST_EVALUATION_S, limits.stall_deadline_s)


def overdue(memo: Memo, limits: Limits, now: float) -> tuple[FailureClass, str] | None:
    """Which deadline has passed at ``now`` (Unix seconds), in words; None while all is well.

    A blocked attempt waits for a person, and no clock of its own runs meanwhile: the campaign's budget, or a stop, ends it.
    """
    if memo.blocked:
        return None
    if now - memo.started_at - memo.waited_s > limits.max_time_s:
        return FailureClass.MAX_TIME, f"the attempt took longer than {limits.max_time_s:g} s"
    if memo.phase not in ("running", "evaluating"):
        return None
    idle_s = now - max(memo.started_at, memo.progress_at)
    if memo.phase == "evaluating":
        limit, what = (
            evaluation_limit_s(limits) + EVALUATION_GRACE_S,
            "the final evaluation did not end",
        )
    elif not memo.step:
        limit, what = limits.first_step_deadline_s, "there was no first step"
    else:
        limit, what = limits.stall_deadline_s, f"no step completed after step {memo.step}"
    return (FailureClass.STALL, f"{what} for {limit:g} s") if idle_s > limit else None
