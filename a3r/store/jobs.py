"""Jobs: the leader's long work. A tick files one and looks at it again; a thread of the daemon does it."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, or_, select

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, JobState
from a3r.store.book import Book, fetch, note
from a3r.store.campaigns import FINAL
from a3r.store.rows import JobRow
from a3r.store.tables import CampaignTable, JobTable

OVER = frozenset({JobState.DONE, JobState.FAILED})
HELD = frozenset({CampaignState.PAUSED, CampaignState.BLOCKED})
LAST_WORDS = "interpret"
"""The only kind that is still done once somebody asked the campaign to stop."""
WORTH_REPLAYING = frozenset({"model_refused", "model_unavailable", "budget_spent"})
"""Codes of failures that the replies so far did not cause: another try replays those and pays for nothing twice."""


class JobBook(Book):
    """What the Store says about jobs."""

    def ensure_job(
        self, job_id: str, campaign_id: str, kind: str, payload: dict[str, Any], at: float
    ) -> JobRow:
        """File the job unless it is there; the first payload stands. Safe to repeat."""
        with self._db.read() as session:
            found = session.get(JobTable, job_id)
            if found is not None:
                return _row(found)
        with self._db.write() as session:
            found = session.get(JobTable, job_id)
            if found is not None:
                return _row(found)
            fetch(session, CampaignTable, campaign_id, "campaign")
            record = JobTable(
                id=job_id,
                campaign_id=campaign_id,
                kind=kind,
                payload=payload,
                state=JobState.QUEUED.value,
                created_at=at,
                updated_at=at,
            )
            session.add(record)
            session.flush()
            _note(session, record, at)
            return _row(record)

    def job(self, job_id: str) -> JobRow:
        """One job.

        Raises:
            NotFound: there is none of this id.
        """
        with self._db.read() as session:
            return _row(fetch(session, JobTable, job_id, "job"))

    def jobs(self, campaign_id: str) -> list[JobRow]:
        """The campaign's jobs in the order in which they were filed."""
        with self._db.read() as session:
            found = session.exec(
                select(JobTable).where(JobTable.campaign_id == campaign_id).order_by(*_ORDER)
            )
            return [_row(record) for record in found]

    def take_job(self, at: float) -> JobRow | None:
        """Take the oldest job that is due at ``at``: it is RUNNING now. None when there is none; then nothing is written.

        Not due: jobs of campaigns that are over, or that wait for a person; once a stop was asked for, only the last words.
        """
        with self._db.read() as session:
            if _due(session, at) is None:
                return None
        with self._db.write() as session:
            record = _due(session, at)
            if record is None:
                return None
            record.state, record.updated_at = JobState.RUNNING.value, at
            return _row(record)

    def settle_job(
        self,
        job_id: str,
        state: JobState,
        *,
        detail: str = "",
        result: dict[str, Any] | None = None,
        not_before: float = 0.0,
        moved: bool = False,
    ) -> JobRow:
        """Write what became of a running job. ``not_before``: when a WAITING or QUEUED one is tried again.

        ``moved``: a reply arrived since the last wait, so the count of waits starts anew. A repeat is harmless.

        Raises:
            Conflict: it is done or failed, which is final but for ``requeue_jobs``.
        """
        at = self._clock.time()
        with self._db.write() as session:
            record = fetch(session, JobTable, job_id, "job")
            before, said = JobState(record.state), record.detail
            if before in OVER and state is not before:
                raise Conflict(f"job {job_id!r} is {before.value}, which is final")
            record.state, record.detail, record.not_before = state.value, detail, not_before
            record.updated_at = at
            if result is not None:
                record.result = result
            if state is JobState.WAITING:
                record.tries = 1 if moved else record.tries + 1
                if moved or record.waiting_since is None:
                    record.waiting_since = at
            else:
                record.tries, record.waiting_since = 0, None
            if state in OVER or (state is JobState.WAITING and said != detail):
                _note(session, record, at)
            return _row(record)

    def recover_jobs(self) -> int:
        """Queue again what was RUNNING when the last daemon ended; return how many."""
        with self._db.write() as session:
            found = session.exec(select(JobTable).where(JobTable.state == JobState.RUNNING.value))
            records = list(found)
            for record in records:
                record.state, record.updated_at = JobState.QUEUED.value, self._clock.time()
            return len(records)

    def requeue_jobs(self, campaign_id: str, *, failed: bool = True) -> int:
        """A person lets the campaign go on: waiting jobs are tried at once, failed ones (if ``failed``) again. Returns how many.

        A job that failed on its replies starts a new round, which buys new ones; one that failed for want of a key or of
        money replays those that it has.
        """
        at = self._clock.time()
        with self._db.write() as session:
            states = [JobState.WAITING.value, *([JobState.FAILED.value] if failed else [])]
            found = session.exec(
                select(JobTable).where(
                    JobTable.campaign_id == campaign_id, col(JobTable.state).in_(states)
                )
            )
            records = list(found)
            for record in records:
                if record.state == JobState.FAILED.value:
                    if (record.result or {}).get("code") not in WORTH_REPLAYING:
                        record.round += 1
                    record.state, record.result, record.detail = JobState.QUEUED.value, None, ""
                    _note(session, record, at)
                record.not_before, record.updated_at = 0.0, at
            return len(records)


_ORDER = (col(JobTable.created_at), col(JobTable.id))


def _due(session: Session, at: float) -> JobTable | None:
    ready = or_(
        col(JobTable.state) == JobState.QUEUED.value, col(JobTable.state) == JobState.WAITING.value
    )
    held = [state.value for state in FINAL | HELD]
    open_campaign = (col(CampaignTable.state).not_in(held)) & (
        col(CampaignTable.stop_requested_at).is_(None) | (col(JobTable.kind) == LAST_WORDS)
    )
    return session.exec(
        select(JobTable)
        .join(CampaignTable, col(CampaignTable.id) == col(JobTable.campaign_id))
        .where(ready, col(JobTable.not_before) <= at, open_campaign)
        .order_by(*_ORDER)
        .limit(1)
    ).first()


def _note(session: Session, record: JobTable, at: float) -> None:
    data = {"kind": record.kind, "detail": record.detail, "not_before": record.not_before}
    note(session, record.campaign_id, f"job_{record.state}", record.id, at, data=data)


def _row(record: JobTable) -> JobRow:
    return JobRow.model_validate(record.model_dump())
