"""A run that ended without a result gets one more attempt because a person says so; the report discloses it."""

from __future__ import annotations

from sqlmodel import select

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, RunState, StageState
from a3r.store.attempts import queue_next
from a3r.store.attempts import to_row as attempt_row
from a3r.store.book import Book, fetch, note
from a3r.store.reviews import may_run
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
WITHOUT_RESULT = (RunState.FAILED.value, RunState.CANCELLED.value)


class RetryBook(Book):
    """What the Store says about runs that are tried again by hand."""

    def retry_run(self, run_id: str, by: str, at: float) -> AttemptRow:
        """Open a failed or cancelled run again and queue an attempt, beyond ``limits.max_attempts``; recorded as a deviation.

        Raises:
            Conflict: the run has a result or is under way, its stage was analysed without it (a result that comes after the
                conclusion may not change it), the campaign is over, or the blueprint may not run (review).
        """
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            record = fetch(session, BlueprintTable, run.blueprint_id, "blueprint")
            stage = fetch(session, StageTable, record.stage_id, "stage")
            campaign = fetch(session, CampaignTable, run.campaign_id, "campaign")
            if run.state not in WITHOUT_RESULT:
                live = run.state in (RunState.PENDING.value, RunState.ACTIVE.value)
                raise Conflict(
                    f"run {run_id!r} is {run.state}; only what ended without a result is tried again",
                    hint=f"`a3r run cancel {run_id}` ends it" if live else "it has its result",
                )
            if campaign.state in OVER or stage.state in DECIDED:
                what = (
                    "its campaign is over" if campaign.state in OVER else "its stage was analysed"
                )
                raise Conflict(
                    f"run {run_id!r} cannot be retried: {what}",
                    hint="a result that comes after the conclusion may not change it; start the goal again",
                )
            if not may_run(session, record):
                raise Conflict(
                    f"blueprint {record.name!r} is not approved in its current version",
                    hint=f"`a3r blueprint approve {record.campaign_id}/{record.name}` after reading it",
                )
            before = session.exec(select(AttemptTable).where(AttemptTable.run_id == run_id)).all()
            why = run.reason or run.failure or run.state
            run.state, run.reason, run.failure = RunState.PENDING.value, "", None
            data = {"by": by, "after": why}
            note(session, run.campaign_id, "run_retried", run_id, at, actor="person", data=data)
            deviation = DeviationTable(
                campaign_id=run.campaign_id,
                blueprint_id=record.id,
                attempt_id=before[-1].id if before else None,
                at=at,
                what=f"{by} asked for another attempt of a run that had ended",
                data={"remedy": "new_attempt", "why": why},
            )
            session.add(deviation)
            return attempt_row(queue_next(session, run, len(before) + 1, at))
