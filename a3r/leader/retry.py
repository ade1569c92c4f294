"""Which failures may be tried again: a new attempt costs a whole run, so what can only repeat is not repeated."""

from __future__ import annotations

from a3r.core.types import AttemptState, FailureClass
from a3r.store.rows import AttemptRow

PERMANENT = frozenset(
    {
        FailureClass.IMPORT,
        FailureClass.SYNTAX,
        FailureClass.CONFIG,
        FailureClass.DATA_MISSING,
        FailureClass.NAN,  # the same seed takes the same path into it; it is a result of the cell, not an accident
        FailureClass.STOP_RULE,  # the blueprint's own verdict on the cell
        FailureClass.STOPPED,
    }
)


def may_retry(attempts: list[AttemptRow], max_attempts: int) -> bool:
    """Whether a run whose ``attempts`` (in order) are all over gets another one; True when it had none."""
    if not attempts:
        return True
    last = attempts[-1]
    if len(attempts) >= max_attempts or last.state is AttemptState.CANCELLED:
        return False
    return last.failure is None or last.failure not in PERMANENT


def of_last_client(attempts: list[AttemptRow]) -> list[AttemptRow]:
    """The attempts that ran the same revision of the client as the last one: a repaired client is tried anew."""
    return [a for a in attempts if a.revision == attempts[-1].revision]


def reason_of(attempts: list[AttemptRow], max_attempts: int) -> str:
    """Why the run ends here, in words."""
    last = attempts[-1]
    what = last.reason or (last.failure.value if last.failure else last.state.value)
    if len(attempts) >= max_attempts and len(attempts) > 1:
        return f"{what} (attempt {len(attempts)} of {max_attempts})"
    return what
