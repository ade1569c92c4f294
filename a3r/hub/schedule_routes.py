"""``/api/v1/schedules``: goals that the daemon starts again and again. What a cron expression means is the leader's to know."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from a3r.core.types import ReviewMode
from a3r.hub.state import Hub

Json = dict[str, Any]


class ScheduleRequest(BaseModel):
    """``POST /api/v1/schedules``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    goal_path: str
    """Absolute: read anew at each firing."""
    cron: str
    timezone: str
    review: ReviewMode | None = None
    """None = as the goal says."""


def add_schedules(router: APIRouter, hub: Hub) -> None:
    """Add the schedule routes to ``router``."""
    store = hub.store

    @router.post("/schedules")
    def add(request: ScheduleRequest) -> Json:
        """Add a schedule; the same one again changes only who reviews."""
        options = {} if request.review is None else {"review": request.review.value}
        row = store.add_schedule(
            request.goal_path, request.cron, request.timezone, options, hub.clock.time()
        )
        return row.model_dump(mode="json")

    @router.get("/schedules")
    def list_schedules() -> Json:
        """All schedules, oldest first."""
        return {"schedules": [row.model_dump(mode="json") for row in store.schedules()]}

    @router.post("/schedules/{schedule_id}/remove")
    def remove(schedule_id: str) -> Json:
        """Forget a schedule; campaigns that it started go on."""
        return store.remove_schedule(schedule_id).model_dump(mode="json")
