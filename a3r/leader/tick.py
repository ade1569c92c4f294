"""What one look at one campaign works with, and the few writes that every step of it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.ports import Clock
from a3r.core.types import CampaignState, JobState, StageState
from a3r.core.workspace import Workspace
from a3r.leader.goal import GoalSpec
from a3r.leader.job_words import job_failed
from a3r.leader.plan import Planner
from a3r.leader.spending import gpu_hours_held
from a3r.leader.worked import events_of, minutes_are_up, worked_s
from a3r.report.export import records_from_store
from a3r.report.records import Records
from a3r.store.rows import CampaignRow, EventRow, JobRow, StageRow
from a3r.store.store import Store

OPEN_STAGES = frozenset({StageState.PLANNED, StageState.RUNNING})


@dataclass(frozen=True, slots=True)
class Tick:
    """One campaign as it was read just now. Steps never keep anything from one tick to the next: the database is the memory."""

    store: Store
    clock: Clock
    workspace: Workspace
    make_planner: Callable[[Tick], Planner]
    campaign: CampaignRow
    goal: GoalSpec

    @property
    def planner(self) -> Planner:
        """The campaign's planner. It keeps nothing either."""
        return self.make_planner(self)

    @property
    def id(self) -> str:
        """The campaign's id."""
        return self.campaign.id

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.clock.time()

    @property
    def goal_dir(self) -> Path:
        """The goal's folder."""
        return Path(self.campaign.goal_dir)

    def records(self) -> Records:
        """Everything that the campaign has so far; costly, so asked for only where something is decided."""
        return records_from_store(self.store, self.id)

    def open_stage(self) -> StageRow | None:
        """The stage that is planned or running; there is at most one."""
        return next((s for s in self.store.stages(self.id) if s.state in OPEN_STAGES), None)

    def enter(self, state: CampaignState, failure: str | None = None) -> bool:
        """Move the campaign to ``state``; False when it is there."""
        if self.campaign.state is state:
            return False
        self.store.set_campaign_state(self.id, state, failure=failure)
        return True

    def decide_once(
        self, stage_id: str | None, what: str, why: str, evidence: dict[str, Any]
    ) -> bool:
        """Record a decision unless the same one (stage and ``what``) stands already, as after a crash; False then."""
        if any(d.stage_id == stage_id and d.what == what for d in self.store.decisions(self.id)):
            return False
        self.store.add_decision(self.id, stage_id, what, why, evidence, self.now)
        return True

    def events(self) -> Iterator[EventRow]:
        """The campaign's events in order, read in pages."""
        return events_of(self.store, self.id)

    def job(self, kind: str, subject: str, payload: dict[str, Any] | None = None) -> JobRow:
        """The job ``<campaign>/<kind>/<subject>``, filed if it is not there; look again next tick until it is over."""
        job_id = f"{self.id}/{kind}/{subject}"
        return self.store.ensure_job(job_id, self.id, kind, payload or {}, self.now)

    def result_of(
        self, kind: str, subject: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """What the job found; None while it is not done.

        Raises:
            JobFailed: it failed. Let through, this blocks the campaign with the job's reason; a resume tries it again.
        """
        job = self.job(kind, subject, payload)
        if job.state is JobState.FAILED:
            raise job_failed(job, f"{kind} {subject}")
        return job.result if job.state is JobState.DONE else None

    def wall_clock_is_up(self) -> bool:
        """Whether the budget's minutes of work are used; time in which the campaign waited for a person does not count."""
        minutes = self.goal.budget.wall_clock_min
        return minutes_are_up(self.store, self.campaign, minutes, self.now)

    def gpu_hours_are_up(self) -> bool:
        """Whether attempts, those under way included, have held GPUs for as long as the budget allows."""
        hours = self.goal.budget.gpu_hours
        return hours is not None and gpu_hours_held(self.store.attempts(self.id), self.now) >= hours

    def worked_s(self) -> float:
        """Seconds in which the campaign did not wait for a person."""
        return worked_s(self.store, self.campaign, self.now)
