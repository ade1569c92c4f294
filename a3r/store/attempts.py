"""Attempts: queue, claim under a lease with a fencing token, renew, stop, expire, lose."""

from __future__ import annotations

from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.ids import new_id, new_nonce
from a3r.core.placement import Need, Offer
from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    TERMINAL_RUNS,
    AttemptState,
    RunState,
    WorkerState,
)
from a3r.store.book import Book, columns_of, fetch, next_count, note
from a3r.store.claimable import queued_of, with_room
from a3r.store.parsed import parsed
from a3r.store.placement import keeps_free, leased_gpus, need_of, release, take
from a3r.store.reviews import may_run
from a3r.store.revisions import number_in_force
from a3r.store.rows import AttemptRow
from a3r.store.tables import AttemptTable, BlueprintTable, RunTable, WorkerTable

REPORTABLE = frozenset(
    {
        AttemptState.LEASED,
        AttemptState.PREPARING,
        AttemptState.RUNNING,
        AttemptState.EVALUATING,
        AttemptState.BLOCKED,
    }
)
"""States in which a worker holds a lease; what a heartbeat may say."""
_FINAL = [state.value for state in TERMINAL_ATTEMPTS]
_HOLDING = [*(state.value for state in REPORTABLE), AttemptState.UNREACHABLE.value]
_HELD = (
    sql_select(*columns_of(AttemptTable, without="queue_order"))
    .where(col(AttemptTable.state).in_(_HOLDING))
    .order_by(col(AttemptTable.queue_order))
)


class AttemptBook(Book):
    """What the Store says about attempts on their way; how they end is in ``a3r.store.finishing``."""

    def queue_attempt(self, run_id: str, at: float) -> AttemptRow:
        """Queue the run's next attempt.

        Raises:
            Conflict: the run is final or has an attempt under way, its blueprint may not run (review), or
                ``limits.max_attempts`` is used up (counted anew for each revision of the client).
        """
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            record = fetch(session, BlueprintTable, run.blueprint_id, "blueprint")
            before = session.exec(select(AttemptTable).where(AttemptTable.run_id == run_id)).all()
            revision = number_in_force(session, record.id)
            tried = sum(a.revision == revision for a in before)
            _refuse_queueing(session, run, record, tried)
            return to_row(queue_next(session, run, len(before) + 1, at))

    def attempts(self, campaign_id: str) -> list[AttemptRow]:
        """All attempts of the campaign, in the order in which they were queued."""
        with self._db.read() as session:
            query = select(AttemptTable).where(AttemptTable.campaign_id == campaign_id)
            return [to_row(r) for r in session.exec(query.order_by(col(AttemptTable.queue_order)))]

    def attempts_of_run(self, run_id: str) -> list[AttemptRow]:
        """The run's attempts, first to last."""
        with self._db.read() as session:
            query = select(AttemptTable).where(AttemptTable.run_id == run_id)
            return [to_row(r) for r in session.exec(query.order_by(col(AttemptTable.ordinal)))]

    def attempts_of_worker(self, worker_id: str) -> list[AttemptRow]:
        """The attempts that the worker holds now, oldest first; ended ones are left out."""
        with self._db.read() as session:
            query = select(AttemptTable).where(
                AttemptTable.worker_id == worker_id, col(AttemptTable.state).not_in(_FINAL)
            )
            return [to_row(r) for r in session.exec(query.order_by(col(AttemptTable.queue_order)))]

    def held_attempts(self) -> list[AttemptRow]:
        """The attempts of all campaigns that a worker holds, or held when it fell silent, oldest first."""
        with self._db.read() as session:
            found = session.connection().execute(_HELD).mappings()
            return [AttemptRow.model_validate(dict(row)) for row in found]

    def attempt(self, attempt_id: str) -> AttemptRow:
        """One attempt.

        Raises:
            NotFound: there is none with this id.
        """
        with self._db.read() as session:
            return to_row(fetch(session, AttemptTable, attempt_id, "attempt"))

    def claim_attempt(
        self, worker_id: str, now: float, lease_s: float, offer: Offer | None = None
    ) -> AttemptRow | None:
        """Lease the oldest queued attempt that may run and fits to the worker, under a new fencing token; None = nothing to do.

        May run: its campaign is running, nobody asked for a stop, fewer than ``capacity`` attempts are held, its
        blueprint's current content is approved (or ``review none``), and the worker is neither draining nor removed.
        Fits: see ``a3r.store.placement``; without an ``offer`` everything without GPUs fits.
        """
        # Looked up first without the lock: most polls find nothing and should hold up nobody.
        with self._db.read() as session:
            if _oldest_claimable(session, worker_id, offer or Offer(), now) is None:
                return None
        with self._db.write(durable=True) as session:
            found = _oldest_claimable(session, worker_id, offer or Offer(), now)
            if found is None:
                return None
            attempt_id, need, free = found
            attempt = fetch(session, AttemptTable, attempt_id, "attempt")
            run = fetch(session, RunTable, attempt.run_id, "run")
            # Taken at the claim: a repair that was approved while the attempt waited is used.
            attempt.revision = number_in_force(session, run.blueprint_id)
            attempt.state = AttemptState.LEASED.value
            attempt.worker_id, attempt.fencing_token = worker_id, next_count(session, "fencing")
            attempt.lease_s, attempt.lease_expires_at = lease_s, now + lease_s
            attempt.leased_at = attempt.heartbeat_at = now
            take(session, attempt, need, free, now + lease_s)
            run.state = RunState.ACTIVE.value
            _tell(session, attempt, "leased", now, worker=worker_id, fencing=attempt.fencing_token)
            return to_row(attempt)

    def request_attempt_stop(self, attempt_id: str, reason: str, at: float) -> AttemptRow:
        """Ask for an end: a queued attempt is cancelled at once, one under way gets ``stop_reason``. Safe to repeat; the first reason stays."""
        with self._db.write() as session:
            attempt = fetch(session, AttemptTable, attempt_id, "attempt")
            state = AttemptState(attempt.state)
            if state is AttemptState.QUEUED:
                cancel_queued(session, attempt, reason, at)
            elif state not in TERMINAL_ATTEMPTS and attempt.stop_reason is None:
                attempt.stop_reason = reason
                _tell(session, attempt, "stop_requested", at, reason=reason)
            return to_row(attempt)

    def expire_leases(self, now: float, hub_up_since: float) -> list[AttemptRow]:
        """Move attempts whose lease ran out to ``unreachable`` and return them; time when the hub was down does not count."""
        with self._db.write() as session:
            held = session.exec(
                select(AttemptTable)
                .where(col(AttemptTable.state).in_([s.value for s in REPORTABLE]))
                .order_by(col(AttemptTable.queue_order))
            ).all()
            expired = [a for a in held if _expiry(a, hub_up_since) < now]
            for attempt in expired:
                before = attempt.state
                attempt.state, attempt.unreachable_at = AttemptState.UNREACHABLE.value, now
                _tell(session, attempt, "unreachable", now, before=before, step=attempt.step)
            return [to_row(a) for a in expired]

    def mark_lost(self, attempt_id: str, reason: str, at: float) -> AttemptRow:
        """Give an unreachable attempt up, for good: whatever it sends later is refused and kept as ``late_result``. Safe to repeat.

        Raises:
            Conflict: the attempt is not ``unreachable`` (unknown is not dead: its lease must run out first).
        """
        with self._db.write() as session:
            attempt = fetch(session, AttemptTable, attempt_id, "attempt")
            state = AttemptState(attempt.state)
            if state is AttemptState.LOST:
                return to_row(attempt)
            if state is not AttemptState.UNREACHABLE:
                raise Conflict(f"attempt {attempt_id!r} is {state.value}, not unreachable")
            attempt.state, attempt.reason = AttemptState.LOST.value, reason
            attempt.ended_at = at
            release(session, attempt)
            _tell(session, attempt, "lost", at, reason=reason, step=attempt.step)
            return to_row(attempt)


def live_attempt(session: Session, run_id: str) -> AttemptTable | None:
    """The run's attempt that has not ended; there is at most one."""
    return session.exec(
        select(AttemptTable).where(
            AttemptTable.run_id == run_id, col(AttemptTable.state).not_in(_FINAL)
        )
    ).one_or_none()


def cancel_queued(session: Session, attempt: AttemptTable, reason: str, at: float) -> None:
    """End an attempt that nobody has claimed."""
    attempt.state, attempt.reason = AttemptState.CANCELLED.value, reason
    attempt.ended_at = at
    _tell(session, attempt, "cancelled", at, reason=reason)


def to_row(record: AttemptTable) -> AttemptRow:
    """Detach."""
    return AttemptRow.model_validate(record.model_dump(exclude={"queue_order"}))


def queue_next(session: Session, run: RunTable, ordinal: int, at: float) -> AttemptTable:
    """Add the run's next attempt, within a transaction that has seen that it may have one."""
    attempt = AttemptTable(
        id=new_id("at", at),
        run_id=run.id,
        campaign_id=run.campaign_id,
        queue_order=next_count(session, "queue"),
        ordinal=ordinal,
        state=AttemptState.QUEUED.value,
        nonce=new_nonce(),
        summary={},
        queued_at=at,
    )
    session.add(attempt)
    session.flush()
    _tell(session, attempt, "queued", at, run=run.id, ordinal=attempt.ordinal)
    return attempt


def _refuse_queueing(
    session: Session, run: RunTable, record: BlueprintTable, attempts: int
) -> None:
    live = live_attempt(session, run.id)
    if live is not None:
        raise Conflict(f"run {run.id!r} has an attempt under way ({live.id!r} is {live.state})")
    if RunState(run.state) in TERMINAL_RUNS:
        raise Conflict(f"run {run.id!r} is {run.state}, which is final")
    if not may_run(session, record):
        raise Conflict(
            f"blueprint {record.name!r} is not approved in its current version",
            hint=f"`a3r blueprint approve {record.campaign_id}/{record.name}` after reading it",
        )
    most = parsed(session, record.id, record.content_hash).limits.max_attempts
    if attempts >= most:
        raise Conflict(f"run {run.id!r} has used its {most} attempts (limits.max_attempts)")


def _oldest_claimable(
    session: Session, worker_id: str, offer: Offer, now: float
) -> tuple[str, Need, Offer] | None:
    state = session.exec(select(WorkerTable.state).where(WorkerTable.id == worker_id)).first()
    if state not in (None, WorkerState.ACTIVE.value):
        return None
    campaigns = with_room(session)
    if not campaigns:
        return None
    free = offer.without(leased_gpus(session, worker_id)) if offer.gpus else offer
    for found in queued_of(session, campaigns):
        if not found.may_run:
            continue
        need = need_of(parsed(session, found.blueprint_id, found.content_hash))
        if free.fits(need):
            return found.attempt_id, need, free
        if keeps_free(session, worker_id, need, now - found.queued_at):
            return None
    return None


def _expiry(attempt: AttemptTable, hub_up_since: float) -> float:
    # A hub that was down could hear no heartbeat: after its start every holder gets one whole lease.
    return max(attempt.lease_expires_at or 0.0, hub_up_since + attempt.lease_s)


def _tell(session: Session, attempt: AttemptTable, kind: str, at: float, **data: object) -> None:
    note(
        session,
        attempt.campaign_id,
        f"attempt_{kind}",
        attempt.id,
        at,
        attempt_id=attempt.id,
        data=data,
    )
