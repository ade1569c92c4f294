"""What workers are asked for (a piece of a log, a trace) and what they answered. Nothing ever dials a worker."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.types import CommandState
from a3r.store.book import Book, not_found
from a3r.store.rows import CommandRow
from a3r.store.tables import CommandTable

KEPT = 200
"""Answered commands of a worker that are kept; answers can be large."""


class CommandBook(Book):
    """What the Store says about commands that want an answer."""

    def add_command(
        self, worker_id: str, attempt_id: str | None, kind: str, args: dict[str, Any], at: float
    ) -> CommandRow:
        """Ask the worker for something; an open command with the same words is returned instead of a second one."""
        with self._db.write() as session:
            same = session.exec(
                select(CommandTable).where(
                    CommandTable.worker_id == worker_id,
                    CommandTable.attempt_id == attempt_id,
                    CommandTable.kind == kind,
                    CommandTable.state == CommandState.OPEN.value,
                )
            ).all()
            known = next((c for c in same if c.args == args), None)
            if known is not None:
                return to_row(known)
            record = CommandTable(
                worker_id=worker_id,
                attempt_id=attempt_id,
                kind=kind,
                args=args,
                state=CommandState.OPEN.value,
                created_at=at,
            )
            session.add(record)
            session.flush()
            _forget_old(session, worker_id)
            return to_row(record)

    def open_commands(self, worker_id: str) -> list[CommandRow]:
        """What the worker has not answered yet, oldest first."""
        with self._db.read() as session:
            found = session.exec(
                select(CommandTable)
                .where(
                    CommandTable.worker_id == worker_id,
                    CommandTable.state == CommandState.OPEN.value,
                )
                .order_by(col(CommandTable.id))
            )
            return [to_row(r) for r in found]

    def command(self, command_id: int) -> CommandRow:
        """One command.

        Raises:
            NotFound: there is none, or it was answered long ago.
        """
        with self._db.read() as session:
            record = session.get(CommandTable, command_id)
            if record is None:
                raise not_found("command", str(command_id), [])
            return to_row(record)

    def answer_command(
        self, command_id: int, worker_id: str, *, ok: bool, result: dict[str, Any], at: float
    ) -> CommandRow:
        """File the answer; the first one stays.

        Raises:
            NotFound: no such command.
            Conflict: another worker was asked.
        """
        with self._db.write() as session:
            record = session.get(CommandTable, command_id)
            if record is None:
                raise not_found("command", str(command_id), [])
            if record.worker_id != worker_id:
                raise Conflict(f"command {command_id} was not given to worker {worker_id!r}")
            if record.state == CommandState.OPEN.value:
                record.state = (CommandState.DONE if ok else CommandState.FAILED).value
                record.result, record.ended_at = result, at
                session.add(record)
                session.flush()
            return to_row(record)


def _forget_old(session: Session, worker_id: str) -> None:
    old = session.exec(
        select(CommandTable)
        .where(CommandTable.worker_id == worker_id, CommandTable.state != CommandState.OPEN.value)
        .order_by(col(CommandTable.id).desc())
        .offset(KEPT)
    ).all()
    for record in old:
        session.delete(record)


def to_row(record: CommandTable) -> CommandRow:
    """Detach."""
    return CommandRow.model_validate(record.model_dump())
