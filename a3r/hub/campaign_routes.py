"""``/api/v1/campaigns``: start, look, wait for events, stop, resume."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, ReviewMode, RunState
from a3r.hub import views
from a3r.hub.history import event_lines
from a3r.hub.state import Hub
from a3r.store.rows import CampaignRow, EventRow

Json = dict[str, Any]

FINAL = (CampaignState.DONE, CampaignState.STOPPED)
HELD = (CampaignState.BLOCKED, CampaignState.PAUSED)


class StartRequest(BaseModel):
    """``POST /api/v1/campaigns``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    goal_text: str = Field(max_length=2**20)
    goal_dir: str = Field(max_length=4096)
    """Folder of goal.md: what it refers to is looked up there."""
    review: ReviewMode | None = None
    """None = as the goal says."""
    planner: str | None = None


def add_campaigns(router: APIRouter, hub: Hub) -> None:
    """Add the campaign routes to ``router``."""
    store = hub.store

    @router.post("/campaigns")
    def start(request: StartRequest) -> Json:
        """File a campaign; the leader takes it from there."""
        goal = hub.hooks.read_goal(request.goal_text, request.goal_dir)
        row = store.create_campaign(
            goal.name,
            request.goal_text,
            request.goal_dir,
            goal.spec,
            request.review or goal.review,
            request.planner or goal.planner,
            hub.clock.time(),
        )
        hub.changed()
        return views.campaign_view(store, row)

    @router.get("/campaigns")
    def list_campaigns() -> Json:
        """All campaigns, oldest first."""
        return {"campaigns": [views.campaign_line(store, row) for row in store.campaigns()]}

    @router.get("/campaigns/{reference}")
    def show(reference: str) -> Json:
        """One campaign by id, unique prefix or name."""
        return views.campaign_view(store, store.campaign(reference))

    _add_steering(router, hub)
    _add_runs_of(router, hub)
    _add_events(router, hub)


def _add_steering(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.post("/campaigns/{reference}/stop")
    def stop(reference: str) -> Json:
        """Ask for a stop. Stopping what is over changes nothing."""
        row = store.campaign(reference)
        if row.state not in FINAL:
            row = store.request_stop(row.id)
            hub.changed()
        return views.campaign_line(store, row)

    @router.post("/campaigns/{reference}/resume")
    def resume(reference: str) -> Json:
        """Let a blocked or paused campaign go on. Resuming one that is under way changes nothing."""
        row = _resumed(hub, store.campaign(reference))
        return views.campaign_line(store, row)


def _add_runs_of(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.get("/campaigns/{reference}/runs")
    def runs(reference: str, state: RunState | None = None) -> Json:
        """The runs of a campaign (or only those in ``state``) in order of creation."""
        row = store.campaign(reference)
        names = {b.id: b for b in store.blueprints(row.id)}
        lines = [
            views.run_line(store, run, names)
            for run in store.runs(row.id)
            if state in (None, run.state)
        ]
        return {"campaign": row.id, "runs": lines}


def _add_events(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.get("/campaigns/{reference}/events")
    async def events(
        reference: str,
        http: Request,
        after_seq: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=5000)] = 500,
        wait_s: Annotated[float, Query(ge=0)] = 0.0,
        state: Annotated[
            str | None, Query(description="The state that the caller has seen.")
        ] = None,
    ) -> Json:
        """Events after ``after_seq``; waits for one, or for the campaign to leave ``state``."""
        campaign_id = (await asyncio.to_thread(store.campaign, reference)).id

        def look() -> Json | None:
            found = store.events(campaign_id, after_seq, limit)
            row = store.campaign(campaign_id)
            moved = state is not None and row.state.value != state
            return _page(hub, row, found, after_seq) if found or moved else None

        page = await hub.poll(look, wait_s, http.is_disconnected)
        if page is None:
            row = await asyncio.to_thread(store.campaign, campaign_id)
            page = await asyncio.to_thread(_page, hub, row, [], after_seq)
        return page


def _page(hub: Hub, row: CampaignRow, found: list[EventRow], after_seq: int) -> Json:
    return {
        "campaign": views.campaign_line(hub.store, row),
        "events": event_lines(hub.store, row.id, found),
        "last_seq": found[-1].seq if found else after_seq,
    }


def _resumed(hub: Hub, row: CampaignRow) -> CampaignRow:
    if row.state in FINAL:
        raise Conflict(
            f"Campaign {row.id!r} is {row.state.value}: that is final.",
            hint="Start the goal again with 'a3r campaign start'; the finished records stay as they are.",
        )
    held = row.state in HELD
    hub.store.requeue_jobs(row.id, failed=held)
    if held:
        row = hub.store.set_campaign_state(row.id, CampaignState.RUNNING)
        hub.store.add_event(row.id, "person", "campaign_resumed", row.id, {}, hub.clock.time())
        hub.changed()
    return row
