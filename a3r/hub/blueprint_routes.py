"""``/api/v1/blueprints``: what is to be run, and a person's verdict on it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import Conflict
from a3r.core.types import ReviewStatus
from a3r.hub import views
from a3r.hub.refusals import RequestInvalid
from a3r.hub.state import Hub
from a3r.store.rows import BlueprintRow

Json = dict[str, Any]


class ReviewRequest(BaseModel):
    """A verdict. ``content_hash`` names what was read; None = the current content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: ReviewStatus
    content_hash: str | None = None
    by: str = Field(min_length=1)
    note: str = ""


def add_blueprints(router: APIRouter, hub: Hub) -> None:
    """Add the blueprint routes to ``router``."""
    store = hub.store

    @router.get("/campaigns/{reference}/blueprints")
    def list_blueprints(reference: str) -> Json:
        """The blueprints of a campaign in order of creation."""
        row = store.campaign(reference)
        lines = [views.blueprint_line(b) for b in store.blueprints(row.id)]
        return {"campaign": row.id, "review_mode": row.review_mode.value, "blueprints": lines}

    @router.post("/campaigns/{reference}/review")
    def review_stage(reference: str, request: ReviewRequest) -> Json:
        """The same verdict on every blueprint that awaits one."""
        row = store.campaign(reference)
        waiting = views.awaiting_review(store, row.id)
        if not waiting:
            raise Conflict(
                f"Nothing of campaign {row.id!r} awaits a review.",
                hint=f"'a3r blueprint list {row.id}' shows each verdict.",
            )
        return {"reviewed": [_review(hub, blueprint, request) for blueprint in waiting]}

    @router.post("/blueprints/{reference:path}/review")
    def review(reference: str, request: ReviewRequest) -> Json:
        """A verdict on one blueprint."""
        return {"reviewed": [_review(hub, store.blueprint(reference), request)]}

    @router.get("/blueprints/{reference:path}")
    def show(reference: str) -> Json:
        """One blueprint by id or ``campaign/name``."""
        return views.blueprint_view(store, store.blueprint(reference))


def _review(hub: Hub, row: BlueprintRow, request: ReviewRequest) -> Json:
    if request.verdict is ReviewStatus.PENDING:
        raise RequestInvalid(
            "'pending' is not a verdict.", hint="Use approved, changes_requested or rejected."
        )
    read = request.content_hash or row.content_hash
    hub.store.review(row.id, read, request.verdict, request.by, request.note, hub.clock.time())
    hub.changed()
    return {"id": row.id, "name": row.name, "content_hash": read, "verdict": request.verdict.value}
