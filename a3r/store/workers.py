"""Workers as they last registered. Only for people to look at: leases, not this table, decide who is alive."""

from __future__ import annotations

from typing import Any

from sqlmodel import col, select

from a3r.core.types import WorkerState
from a3r.store.book import Book, fetch
from a3r.store.rows import WorkerRow
from a3r.store.tables import WorkerTable


class WorkerBook(Book):
    """What the Store says about workers."""

    def upsert_worker(
        self,
        worker_id: str,
        host: str,
        pid: int,
        slots: int,
        inventory: dict[str, Any],
        at: float,
        token_name: str = "",
    ) -> WorkerRow:
        """Register, or register again after a restart (``registered_at`` keeps the first time).

        ``token_name``: of the worker's own token; empty = it came with the workspace's shared one.
        """
        with self._db.write() as session:
            record = session.get(WorkerTable, worker_id) or WorkerTable(
                id=worker_id,
                host=host,
                pid=pid,
                slots=slots,
                inventory=inventory,
                registered_at=at,
                seen_at=at,
            )
            record.host, record.pid, record.slots = host, pid, slots
            record.inventory, record.seen_at = inventory, at
            record.token_name = token_name
            session.add(record)
            session.flush()
            return WorkerRow.model_validate(record.model_dump())

    def set_worker_state(self, worker_id: str, state: WorkerState) -> WorkerRow:
        """Say what a person wants of the worker; registering again does not change it.

        Raises:
            NotFound: no such worker ever registered.
        """
        with self._db.write() as session:
            record = fetch(session, WorkerTable, worker_id, "worker")
            record.state = state.value
            session.add(record)
            session.flush()
            return WorkerRow.model_validate(record.model_dump())

    def wanted_of(self, worker_id: str) -> WorkerState:
        """What a person wants of the worker; ``active`` of one that never registered."""
        with self._db.read() as session:
            record = session.get(WorkerTable, worker_id)
            return WorkerState.ACTIVE if record is None else WorkerState(record.state)

    def worker(self, worker_id: str) -> WorkerRow | None:
        """A worker as it last registered; None if it never did."""
        with self._db.read() as session:
            record = session.get(WorkerTable, worker_id)
            return None if record is None else WorkerRow.model_validate(record.model_dump())

    def workers(self) -> list[WorkerRow]:
        """All workers that ever registered, in order of id."""
        with self._db.read() as session:
            found = session.exec(select(WorkerTable).order_by(col(WorkerTable.id)))
            return [WorkerRow.model_validate(w.model_dump()) for w in found]
