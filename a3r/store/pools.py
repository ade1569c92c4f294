"""Pools, and the workers that were asked of them. A job is on file before the engine hears of it, so none is ever forgotten."""

from __future__ import annotations

from sqlmodel import Session, col, or_, select

from a3r.core.errors import Conflict
from a3r.core.ids import new_id
from a3r.core.pools import LIVE_JOBS, PoolJobState, PoolKind, PoolOptions, PoolState
from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, FailureClass
from a3r.store.book import Book, fetch, note
from a3r.store.placement import release
from a3r.store.rows import PoolJobRow, PoolRow
from a3r.store.tables import AttemptTable, PoolJobTable, PoolTable, WorkerTable

_LIVE = [state.value for state in LIVE_JOBS]
_FINAL = [state.value for state in TERMINAL_ATTEMPTS]


class PoolBook(Book):
    """What the Store says about pools."""

    def add_pool(self, name: str, kind: PoolKind, options: PoolOptions, at: float) -> PoolRow:
        """Add a pool, or bring the one of this name up to date (a removed one is back). Safe to repeat.

        Raises:
            Conflict: a pool of this name has another engine and still has jobs there.
        """
        body = options.model_dump(mode="json", exclude_defaults=True)
        with self._db.write() as session:
            record = session.get(PoolTable, name)
            if record is not None and record.kind != kind.value and _live(session, name):
                raise Conflict(
                    f"the pool {name!r} is a {record.kind} pool and has jobs there",
                    hint=f"`a3r pool remove {name}` first, or choose another name",
                )
            if record is None:
                record = PoolTable(
                    name=name, kind="", options={}, state="", created_at=at, updated_at=at
                )
            record.kind, record.options = kind.value, body
            record.state, record.detail, record.updated_at = PoolState.ACTIVE.value, "", at
            session.add(record)
            session.flush()
            return _row(record)

    def pool(self, name: str) -> PoolRow:
        """One pool.

        Raises:
            NotFound: there is none of this name.
        """
        with self._db.read() as session:
            return _row(fetch(session, PoolTable, name, "pool"))

    def pools(self) -> list[PoolRow]:
        """All pools, oldest first; removed ones are left out."""
        with self._db.read() as session:
            found = session.exec(
                select(PoolTable)
                .where(PoolTable.state != PoolState.REMOVED.value)
                .order_by(col(PoolTable.created_at), col(PoolTable.name))
            )
            return [_row(r) for r in found]

    def set_pool_state(self, name: str, state: PoolState, at: float) -> PoolRow:
        """Say what a person wants of the pool.

        Raises:
            NotFound: there is none of this name.
        """
        with self._db.write() as session:
            record = fetch(session, PoolTable, name, "pool")
            if record.state != state.value:
                record.state, record.updated_at = state.value, at
                session.add(record)
                session.flush()
            return _row(record)

    def say_of_pool(self, name: str, detail: str) -> None:
        """Note how it stands with the pool; writes only when that is news."""
        with self._db.read() as session:
            known = session.get(PoolTable, name)
            if known is None or known.detail == detail:
                return
        with self._db.write() as session:
            record = fetch(session, PoolTable, name, "pool")
            record.detail = detail
            session.add(record)

    # -- jobs -------------------------------------------------------------------------------------------------

    def add_pool_job(self, pool: str, at: float) -> PoolJobRow:
        """File a job that will be asked for."""
        with self._db.write() as session:
            record = PoolJobTable(
                id=new_id("pj", at), pool=pool, state=PoolJobState.ASKED.value, submitted_at=at
            )
            session.add(record)
            session.flush()
            return _job(record)

    def pool_jobs(self, pool: str, *, live: bool = False, since: float = 0.0) -> list[PoolJobRow]:
        """The pool's jobs, oldest first; ``live`` leaves out those that are over, ``since`` those that were over before."""
        with self._db.read() as session:
            query = select(PoolJobTable).where(PoolJobTable.pool == pool)
            if live:
                query = query.where(col(PoolJobTable.state).in_(_LIVE))
            if since:
                ended = col(PoolJobTable.ended_at)
                query = query.where(or_(ended.is_(None), ended >= since))
            order = (col(PoolJobTable.submitted_at), col(PoolJobTable.id))
            return [_job(r) for r in session.exec(query.order_by(*order))]

    def pool_job(self, job_id: str) -> PoolJobRow:
        """One job.

        Raises:
            NotFound: there is none with this id.
        """
        with self._db.read() as session:
            return _job(fetch(session, PoolJobTable, job_id, "pool job"))

    def note_pool_job(
        self,
        job_id: str,
        state: PoolJobState,
        at: float,
        *,
        detail: str = "",
        external_id: str | None = None,
    ) -> PoolJobRow:
        """Record how it stands with a job; one that is over stays as it is. An empty ``detail`` keeps the old one."""
        with self._db.write() as session:
            record = fetch(session, PoolJobTable, job_id, "pool job")
            if record.state not in _LIVE:
                return _job(record)
            # The worker may have come since the caller looked at the job.
            come = state in LIVE_JOBS and record.worker_id is not None
            record.state = PoolJobState.WORKING.value if come else state.value
            record.detail = detail or record.detail
            record.external_id = record.external_id if external_id is None else external_id
            if state not in LIVE_JOBS:
                record.ended_at = at
            session.add(record)
            session.flush()
            return _job(record)

    def join_pool(self, job_id: str, worker_id: str) -> PoolJobRow:
        """A worker has come that the job started. Safe to repeat.

        Raises:
            NotFound: there is no such job.
            Conflict: the job is over, or another worker came from it.
        """
        with self._db.write() as session:
            record = fetch(session, PoolJobTable, job_id, "pool job")
            if record.state not in _LIVE or record.worker_id not in (None, worker_id):
                why = record.state if record.worker_id is None else f"worker {record.worker_id!r}'s"
                raise Conflict(
                    f"the pool job {job_id!r} is {why}: worker {worker_id!r} cannot come from it",
                    hint="let the job end; the pool asks for another when runs wait",
                )
            record.worker_id, record.state = worker_id, PoolJobState.WORKING.value
            worker = session.get(WorkerTable, worker_id)
            if worker is not None:
                worker.pool = record.pool
                session.add(worker)
            session.add(record)
            session.flush()
            return _job(record)

    def take_back(self, worker_id: str, reason: str, at: float) -> list[str]:
        """Give up what an ended job's worker held, and return the attempts' ids; an attempt whose lease still runs is left alone.

        Unknown is not dead: here two agree, the lease that ran out and the engine that says its job is over.
        """
        with self._db.write() as session:
            held = session.exec(
                select(AttemptTable).where(
                    AttemptTable.worker_id == worker_id,
                    AttemptTable.state == AttemptState.UNREACHABLE.value,
                )
            ).all()
            for attempt in held:
                attempt.state, attempt.failure = (
                    AttemptState.LOST.value,
                    FailureClass.SCHEDULER.value,
                )
                attempt.reason, attempt.ended_at = reason, at
                release(session, attempt)
                session.add(attempt)
                data = {"reason": reason, "step": attempt.step}
                note(
                    session,
                    attempt.campaign_id,
                    "attempt_lost",
                    attempt.id,
                    at,
                    attempt_id=attempt.id,
                    data=data,
                )
            return [a.id for a in held]


def _live(session: Session, pool: str) -> bool:
    query = select(PoolJobTable.id).where(
        PoolJobTable.pool == pool, col(PoolJobTable.state).in_(_LIVE)
    )
    return session.exec(query).first() is not None


def _row(record: PoolTable) -> PoolRow:
    return PoolRow.model_validate(record.model_dump())


def _job(record: PoolJobTable) -> PoolJobRow:
    return PoolJobRow.model_validate(record.model_dump())
