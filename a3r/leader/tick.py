"""What one look at one campaign works with, and the few writes that every step of it shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.ports import Clock
from a3r.core.types import CampaignState, StageState
from a3r.core.workspace import Workspace
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Planner
from a3r.report.export import records_from_store
from a3r.report.records import Records
from a3r.store.rows import CampaignRow, EventRow, StageRow
from a3r.store.store import Store

OPEN_STAGES = frozenset({StageState.PLANNED, StageState.RUNNING})
WAITING = frozenset({CampaignState.AWAITING_REVIEW, CampaignState.PAUSED, CampaignState.BLOCKED})
"""States in which the campaign's wall clock stands still: it waits for a person."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One campaign as it was read just now. Steps never keep anything from one tick to the next: the database is the memory."""

    store: Store
    clock: Clock
    workspace: Workspace
    planner: Planner
    campaign: CampaignRow
    goal: GoalSpec

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
        after, page = 0, 1000
        while True:
            found = self.store.events(self.id, after_seq=after, limit=page)
            yield from found
            if len(found) < page:
                return
            after = found[-1].seq

    def wall_clock_is_up(self) -> bool:
        """Whether the budget's minutes of work are used; time in which the campaign waited for a person does not count."""
        minutes = self.goal.budget.wall_clock_min
        if minutes is None or self.now - self.campaign.created_at < 60 * minutes:
            return False
        return self.worked_s() >= 60 * minutes

    def worked_s(self) -> float:
        """Seconds in which the campaign did not wait for a person."""
        prefix, states = "campaign_", {s.value for s in CampaignState}
        total, since, waiting = 0.0, self.campaign.created_at, False
        for event in self.events():
            state = event.kind.removeprefix(prefix)
            if event.kind.startswith(prefix) and state in states:
                total += 0.0 if waiting else event.at - since
                since, waiting = event.at, CampaignState(state) in WAITING
        return total + (0.0 if waiting else self.now - since)
