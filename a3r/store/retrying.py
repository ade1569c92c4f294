"""A run that had ended gets one more attempt; the report discloses it.

A person asks for it where there is no result; the leader where the client was mended since, also of a run that has a result.
"""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, select

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, RunState, StageState
from a3r.store.attempts import queue_next
from a3r.store.attempts import to_row as attempt_row
from a3r.store.book import Book, fetch, note
from a3r.store.reviews import may_run
from a3r.store.revisions import number_in_force
from a3r.store.rows import AttemptRow
from a3r.store.tables import (
    AttemptTable,
    BlueprintTable,
    CampaignTable,
    DeviationTable,
    RunTable,
    StageTable,
)

OVER = (CampaignState.DONE.value, CampaignState.STOPPED.value)
DECIDED = (StageState.ANALYSED.value, StageState.ABANDONED.value)
RENEWED = "renewed_attempt"
"""``data["remedy"]`` of the deviation that a run with the repaired client is."""
WITHOUT_RESULT = (RunState.FAILED.value, RunState.CANCELLED.value)


class RetryBook(Book):
    """What the Store says about runs that are tried again although they had ended."""

    def retry_run(self, run_id: str, by: str, at: float, actor: str = "person") -> AttemptRow:
        """Open a failed or cancelled run again and queue an attempt, beyond ``limits.max_attempts``; recorded as a deviation.

        ``actor``: whose the event is; the leader's where the client was mended after the run had ended.

        Raises:
            Conflict: the run has a result or is under way, its stage was analysed without it (a result that comes after the
                conclusion may not change it), the campaign is over, or the blueprint may not run (review).
        """
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            if run.state not in WITHOUT_RESULT:
                live = run.state in (RunState.PENDING.value, RunState.ACTIVE.value)
                raise Conflict(
                    f"run {run_id!r} is {run.state}; only what ended without a result is tried again",
                    hint=f"`a3r run cancel {run_id}` ends it" if live else "it has its result",
                )
            _require_undecided(session, run)
            why = run.reason or run.failure or run.state
            data = {"by": by, "after": why}
            note(session, run.campaign_id, "run_retried", run_id, at, actor=actor, data=data)
            what = f"{by} asked for another attempt of a run that had ended"
            return _open_again(session, run, what, {"remedy": "new_attempt", "why": why}, at)

    def renew_run(self, run_id: str, at: float) -> AttemptRow:
        """Run a succeeded run again with the revision of its client that is in force now; recorded as a deviation.

        The attempt that had succeeded stays in the records; its result no longer counts, whatever the new attempt brings.

        Raises:
            Conflict: the run did not succeed, or did so with the client in force; its stage was analysed, its campaign is over,
                or its blueprint may not run (review).
        """
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            number = number_in_force(session, run.blueprint_id)
            accepted = run.accepted_attempt
            ran = None if accepted is None else fetch(session, AttemptTable, accepted, "attempt")
            if ran is None or ran.revision >= number:
                raise Conflict(f"run {run_id!r} has no result of an earlier revision of its client")
            _require_undecided(session, run)
            data = {"before": ran.revision, "revision": number}
            note(session, run.campaign_id, "run_renewed", run_id, at, actor="leader", data=data)
            what = f"run again with revision {number} of its client: a cell's results come from one client"
            why = f"attempt {ran.ordinal} succeeded with revision {ran.revision}; its result is set aside"
            return _open_again(session, run, what, {"remedy": RENEWED, "why": why, **data}, at)


def _require_undecided(session: Session, run: RunTable) -> None:
    record = fetch(session, BlueprintTable, run.blueprint_id, "blueprint")
    stage = fetch(session, StageTable, record.stage_id, "stage")
    campaign = fetch(session, CampaignTable, run.campaign_id, "campaign")
    if campaign.state in OVER or stage.state in DECIDED:
        what = "its campaign is over" if campaign.state in OVER else "its stage was analysed"
        raise Conflict(
            f"run {run.id!r} cannot be retried: {what}",
            hint="a result that comes after the conclusion may not change it; start the goal again",
        )
    if not may_run(session, record):
        raise Conflict(
            f"blueprint {record.name!r} is not approved in its current version",
            hint=f"`a3r blueprint approve {record.campaign_id}/{record.name}` after reading it",
        )


def _open_again(
    session: Session, run: RunTable, what: str, data: dict[str, Any], at: float
) -> AttemptRow:
    """Without a result, with one more attempt queued, and disclosed."""
    before = session.exec(select(AttemptTable).where(AttemptTable.run_id == run.id)).all()
    run.state, run.accepted_attempt = RunState.PENDING.value, None
    run.reason, run.failure = "", None
    session.add(
        DeviationTable(
            campaign_id=run.campaign_id,
            blueprint_id=run.blueprint_id,
            attempt_id=before[-1].id if before else None,
            at=at,
            what=what,
            data=data,
        )
    )
    return attempt_row(queue_next(session, run, len(before) + 1, at))
