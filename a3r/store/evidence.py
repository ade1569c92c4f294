"""Evidence of an attempt: steps, evaluation rounds, events. Repeats are harmless, contradictions are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState
from a3r.core.wire import EvalRound, EventReport
from a3r.store.book import Book
from a3r.store.fencing import hold, refuse_late, refuse_not_finite
from a3r.store.tables import EvalRoundTable, EventTable, StepTable


class EvidenceBook(Book):
    """What the Store says about an attempt's measurements."""

    def add_steps(self, attempt_id: str, fencing: int, steps: Sequence[dict[str, Any]]) -> int:
        """Keep StepMetrics records by their ``step``; return how many were new.

        Raises:
            Conflict: stale token; a record without an integer ``step`` or with NaN; another content for a step that is
                there; a new step after the attempt ended.
        """
        at = self._clock.time()
        records = list(steps)
        for record in records:
            if type(record.get("step")) is not int:
                raise Conflict("a step record has no integer 'step'")
        refuse_not_finite(records, "a step record")
        payload = {"steps": records}
        with self._db.write() as session:
            attempt = hold(session, attempt_id, fencing, at, what="steps", payload=payload)
            there = _bodies_of(session, attempt_id, [record["step"] for record in records])
            new: dict[int, dict[str, Any]] = {}
            for record in records:
                number: int = record["step"]
                known = there.get(number, new.get(number))
                if known is None:
                    new[number] = record
                elif known != record:
                    raise Conflict(
                        f"step {number} of attempt {attempt_id!r} is already there, with other numbers"
                    )
            if new and AttemptState(attempt.state) in TERMINAL_ATTEMPTS:
                why = f"the attempt already ended as {attempt.state}"
                refuse_late(session, attempt, fencing, at, what="steps", payload=payload, why=why)
            session.add_all(
                StepTable(attempt_id=attempt_id, step=k, body=v) for k, v in new.items()
            )
            if new:
                attempt.step = max(attempt.step or 0, *new)
            return len(new)

    def steps(self, attempt_id: str) -> list[dict[str, Any]]:
        """The attempt's StepMetrics records by step."""
        with self._db.read() as session:
            query = select(StepTable).where(StepTable.attempt_id == attempt_id)
            return [found.body for found in session.exec(query.order_by(col(StepTable.step)))]

    def add_eval_round(self, attempt_id: str, fencing: int, eval_round: EvalRound) -> None:
        """Keep one evaluation round by its name. The same round again changes nothing.

        Raises:
            Conflict: stale token; another content under that name; NaN; a new round after the attempt ended.
        """
        at = self._clock.time()
        body = eval_round.model_dump(mode="python")
        refuse_not_finite(body, f"evaluation round {eval_round.name!r}")
        what = f"evaluation round {eval_round.name!r}"
        with self._db.write() as session:
            attempt = hold(session, attempt_id, fencing, at, what=what, payload=body)
            found = session.get(EvalRoundTable, (attempt_id, eval_round.name))
            if found is not None:
                if found.body != body:
                    raise Conflict(
                        f"{what} of attempt {attempt_id!r} is already there, with other content"
                    )
                return
            if AttemptState(attempt.state) in TERMINAL_ATTEMPTS:
                why = f"the attempt already ended as {attempt.state}"
                refuse_late(session, attempt, fencing, at, what=what, payload=body, why=why)
            session.add(
                EvalRoundTable(attempt_id=attempt_id, name=eval_round.name, body=body, at=at)
            )

    def eval_rounds(self, attempt_id: str) -> list[EvalRound]:
        """The attempt's rounds in order of step, then name."""
        with self._db.read() as session:
            query = select(EvalRoundTable).where(EvalRoundTable.attempt_id == attempt_id)
            rounds = [EvalRound.model_validate(found.body) for found in session.exec(query)]
        return sorted(rounds, key=lambda r: (r.step, r.name))

    def add_events(self, attempt_id: str, fencing: int, events: Sequence[EventReport]) -> int:
        """Keep a worker's events by their ``seq``; return how many were new. Also after the attempt ended (not after it was lost).

        Raises:
            Conflict: stale token, or NaN in an event.
        """
        at = self._clock.time()
        bodies = [event.model_dump(mode="python") for event in events]
        refuse_not_finite(bodies, "an event")
        with self._db.write() as session:
            payload = {"events": bodies}
            attempt = hold(session, attempt_id, fencing, at, what="events", payload=payload)
            query = select(EventTable.attempt_seq).where(EventTable.attempt_id == attempt_id)
            known = set(session.exec(query).all())
            fresh = {event.seq: event for event in events if event.seq not in known}
            rows = [
                {
                    "campaign_id": attempt.campaign_id,
                    "attempt_id": attempt_id,
                    "attempt_seq": seq,
                    "at": event.at,
                    "actor": event.actor,
                    "kind": event.kind,
                    "subject": attempt_id,
                    "data": event.data,
                }
                for seq, event in sorted(fresh.items())
            ]
            if rows:
                session.connection().execute(insert(EventTable), rows)
            return len(rows)


def _bodies_of(
    session: Session, attempt_id: str, steps: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """What is there of these steps."""
    if not steps:
        return {}
    # A worker sends steps that follow each other: a range is one look, however many they are.
    query = (
        select(StepTable)
        .where(StepTable.attempt_id == attempt_id)
        .where(col(StepTable.step).between(min(steps), max(steps)))
    )
    return {found.step: found.body for found in session.exec(query)}
