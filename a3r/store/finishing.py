"""How an attempt ends: terminal states are final, and at most one attempt of a run is ever accepted."""

from __future__ import annotations

from typing import Any, Literal

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    TERMINAL_RUNS,
    AttemptState,
    FailureClass,
    RunState,
)
from a3r.core.wire import EvalRound
from a3r.store.attempts import to_row
from a3r.store.book import Book, fetch, note
from a3r.store.completeness import missing_for_success
from a3r.store.fencing import hold, refuse_late, refuse_not_finite
from a3r.store.parsed import parsed
from a3r.store.placement import release
from a3r.store.rows import AttemptRow
from a3r.store.tables import AttemptTable, BlueprintTable, EvalRoundTable, RunTable, StepTable


class FinishBook(Book):
    """What the Store says about the end of an attempt."""

    def finish_attempt(
        self,
        attempt_id: str,
        fencing: int,
        outcome: Literal["succeeded", "failed", "cancelled"],
        failure: FailureClass | None,
        reason: str,
        summary: dict[str, Any],
        at: float,
    ) -> AttemptRow:
        """End the attempt; a success is accepted as the run's result. The same outcome again changes nothing.

        A failure leaves the run as it is: whether to try again is the reconciler's decision.

        Raises:
            Conflict: stale token; the attempt ended otherwise; the run has a result already; or a success without
                complete evidence (``details["missing"]`` lists what; the attempt stays under way, so it can be sent).
        """
        refuse_not_finite(summary, "the summary")
        payload = {"outcome": outcome, "reason": reason, "summary": summary}
        with self._db.write(durable=True) as session:
            attempt = hold(session, attempt_id, fencing, at, what="finish", payload=payload)
            if AttemptState(attempt.state) in TERMINAL_ATTEMPTS:
                if attempt.state == outcome:
                    return to_row(attempt)
                why = f"it already ended as {attempt.state}"
                refuse_late(session, attempt, fencing, at, what="finish", payload=payload, why=why)
            run = fetch(session, RunTable, attempt.run_id, "run")
            if outcome == "succeeded":
                _accept(session, run, attempt, summary)
            attempt.state, attempt.reason, attempt.summary = outcome, reason, summary
            attempt.failure = failure.value if failure else None
            attempt.ended_at, attempt.unreachable_at = at, None
            release(session, attempt)
            data = {"failure": attempt.failure, "reason": reason, "step": attempt.step}
            _tell(session, attempt, f"attempt_{outcome}", at, data)
            return to_row(attempt)


def _accept(
    session: Session, run: RunTable, attempt: AttemptTable, summary: dict[str, Any]
) -> None:
    if RunState(run.state) in TERMINAL_RUNS:
        raise Conflict(
            f"run {run.id!r} is {run.state}: no other result is accepted",
            hint="finish this attempt as cancelled",
        )
    record = fetch(session, BlueprintTable, run.blueprint_id, "blueprint")
    missing = missing_for_success(
        parsed(session, record.id, record.content_hash),
        run.seed,
        steps=session.exec(
            select(StepTable.step)
            .where(StepTable.attempt_id == attempt.id)
            .order_by(col(StepTable.step))
        ).all(),
        rounds=[
            EvalRound.model_validate(r.body)
            for r in session.exec(
                select(EvalRoundTable).where(EvalRoundTable.attempt_id == attempt.id)
            )
        ],
        summary=summary,
    )
    if missing:
        raise Conflict(
            f"attempt {attempt.id!r} cannot succeed: {'; '.join(missing)}",
            hint="send what is missing, or finish it as failed",
            missing=missing,
        )
    run.state, run.accepted_attempt = RunState.SUCCEEDED.value, attempt.id
    run.failure, run.reason = None, ""


def _tell(
    session: Session, attempt: AttemptTable, kind: str, at: float, data: dict[str, Any]
) -> None:
    note(session, attempt.campaign_id, kind, attempt.id, at, attempt_id=attempt.id, data=data)
