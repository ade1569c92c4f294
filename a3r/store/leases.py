"""Who holds what: resources of workers for people and audits to look at, and attempts whose holder never heard of it."""

from __future__ import annotations

from collections.abc import Collection

from sqlmodel import Session, col, select

from a3r.core.types import AttemptState
from a3r.store.attempts import to_row
from a3r.store.book import Book, note
from a3r.store.placement import extend
from a3r.store.rows import AttemptRow, LeaseRow
from a3r.store.tables import AttemptTable, LeaseTable

_UNHEARD = [AttemptState.LEASED.value, AttemptState.UNREACHABLE.value]


class LeaseBook(Book):
    """What the Store says about leases."""

    def leases(self) -> list[LeaseRow]:
        """Resources that are held now, by worker and resource; those of ended attempts are gone."""
        with self._db.read() as session:
            order = (col(LeaseTable.worker_id), col(LeaseTable.resource))
            found = session.exec(select(LeaseTable).order_by(*order))
            return [LeaseRow.model_validate(r.model_dump()) for r in found]

    def lease_again(
        self, worker_id: str, held: Collection[str], now: float, lease_s: float
    ) -> AttemptRow | None:
        """The oldest attempt that was leased to the worker, of which it never spoke and which is not in ``held``; None = no such.

        Its lease is renewed under the same fencing token, which nobody else has.
        """
        with self._db.read() as session:
            if _unheard(session, worker_id, held) is None:
                return None
        with self._db.write(durable=True) as session:
            attempt = _unheard(session, worker_id, held)
            if attempt is None:
                return None
            attempt.state, attempt.unreachable_at = AttemptState.LEASED.value, None
            attempt.lease_s, attempt.lease_expires_at = lease_s, now + lease_s
            extend(session, attempt, now + lease_s)
            data = {"worker": worker_id, "fencing": attempt.fencing_token}
            kind = "attempt_leased_again"
            note(
                session,
                attempt.campaign_id,
                kind,
                attempt.id,
                now,
                attempt_id=attempt.id,
                data=data,
            )
            return to_row(attempt)


def _unheard(session: Session, worker_id: str, held: Collection[str]) -> AttemptTable | None:
    # A worker that speaks of an attempt moves the time of its last heartbeat.
    found = session.exec(
        select(AttemptTable)
        .where(AttemptTable.worker_id == worker_id, col(AttemptTable.state).in_(_UNHEARD))
        .where(AttemptTable.heartbeat_at == AttemptTable.leased_at)
        .order_by(col(AttemptTable.queue_order))
    ).all()
    return next((attempt for attempt in found if attempt.id not in held), None)
