"""Heartbeats: what the hub must know to answer one, in one look, and the renewal of leases. Hundreds of workers speak every few seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from a3r.core.errors import A3RError, Conflict, NotFound
from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, CommandState, WorkerState
from a3r.store.attempts import REPORTABLE, to_row
from a3r.store.book import Book, columns_of, note
from a3r.store.commands import to_row as command_row
from a3r.store.fencing import hold
from a3r.store.placement import extend
from a3r.store.rows import AttemptRow, CommandRow
from a3r.store.tables import AttemptTable, CommandTable, WorkerTable


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a worker that speaks."""

    attempts: dict[str, AttemptRow]
    """Those that it named and that there are."""
    commands: list[CommandRow]
    """What it has not answered yet, oldest first."""
    wanted: WorkerState
    """``active`` of one that never registered."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a worker says of one attempt."""

    attempt_id: str
    fencing: int
    state: AttemptState
    step: int | None
    """None keeps the old one."""
    detail: str


class BeatBook(Book):
    """What the Store says about heartbeats."""

    def known_of(self, worker_id: str, attempt_ids: Collection[str]) -> Known:
        """One consistent look at the worker, at these attempts and at what the worker is asked for."""
        with self._db.read() as session:
            connection = session.connection()
            named = {"ids": list(attempt_ids)}
            rows = connection.execute(_NAMED, named).mappings() if attempt_ids else ()
            attempts = [AttemptRow.model_validate(dict(row)) for row in rows]
            worker = {"worker": worker_id}
            wanted = connection.execute(_WANTED, worker).scalar()
            # Most workers are asked for nothing: looked up by number first, which is quick.
            asked: list[Any] = list(connection.execute(_ASKED, worker).scalars())
            return Known(
                {attempt.id: attempt for attempt in attempts},
                _commands(session, asked) if asked else [],
                WorkerState.ACTIVE if wanted is None else WorkerState(wanted),
            )

    def renew(
        self,
        attempt_id: str,
        fencing: int,
        state: AttemptState,
        step: int | None,
        detail: str,
        now: float,
        lease_s: float,
    ) -> AttemptRow:
        """Extend the lease and record what the worker says; an ``unreachable`` attempt is thereby back. ``step`` None keeps the old one.

        Raises:
            Conflict: the token is stale, the attempt is lost or over, or ``state`` is none that a lease holder is in.
        """
        with self._db.write() as session:
            said = Renewal(attempt_id, fencing, state, step, detail)
            return to_row(_renewed(session, said, now, lease_s))

    def renew_all(
        self, renewals: Sequence[Renewal], now: float, lease_s: float
    ) -> dict[str, A3RError]:
        """``renew`` for each, in one transaction; returns why not, by attempt. What is refused does not hinder the others."""
        refused: dict[str, A3RError] = {}
        with self._db.write() as session:
            for said in renewals:
                try:
                    _renewed(session, said, now, lease_s)
                except (Conflict, NotFound) as error:
                    refused[said.attempt_id] = error
        return refused


def _renewed(session: Session, said: Renewal, now: float, lease_s: float) -> AttemptTable:
    attempt_id, state = said.attempt_id, said.state
    attempt = hold(session, attempt_id, said.fencing, now, what="heartbeat", payload={})
    before = AttemptState(attempt.state)
    if before in TERMINAL_ATTEMPTS:
        raise Conflict(f"attempt {attempt_id!r} is {before.value}: it is not renewed")
    if state not in REPORTABLE:
        raise Conflict(
            f"attempt {attempt_id!r} cannot be reported as {state.value!r}",
            hint=f"a heartbeat says one of {', '.join(sorted(REPORTABLE))}; an end is reported with finish",
        )
    attempt.state, attempt.detail = state.value, said.detail
    attempt.step = attempt.step if said.step is None else said.step
    attempt.heartbeat_at, attempt.unreachable_at = now, None
    attempt.lease_s, attempt.lease_expires_at = lease_s, now + lease_s
    extend(session, attempt, now + lease_s)
    if state is not before:
        data = {"before": before.value, "detail": said.detail}
        kind = f"attempt_{state.value}"
        note(session, attempt.campaign_id, kind, attempt_id, now, attempt_id=attempt_id, data=data)
    return attempt


def _commands(session: Session, ids: Sequence[int]) -> list[CommandRow]:
    query = select(CommandTable).where(col(CommandTable.id).in_(ids)).order_by(col(CommandTable.id))
    return [command_row(record) for record in session.exec(query)]


# Made once: to build such a statement takes longer than to ask it.
_NAMED = sql_select(*columns_of(AttemptTable, without="queue_order")).where(
    col(AttemptTable.id).in_(bindparam("ids", expanding=True))
)
_WANTED = sql_select(col(WorkerTable.state)).where(col(WorkerTable.id) == bindparam("worker"))
_ASKED = (
    sql_select(col(CommandTable.id))
    .where(col(CommandTable.worker_id) == bindparam("worker"))
    .where(col(CommandTable.state) == CommandState.OPEN.value)
)
