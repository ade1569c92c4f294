"""``/api/v1/campaigns/<campaign>/reuse``: results of earlier campaigns that planned runs could take over."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from a3r.core.errors import Conflict
from a3r.hub.state import Hub

Json = dict[str, Any]

ACCEPT = "accept results of earlier campaigns"
"""As in ``a3r.leader.reuse``, which the hub does not import."""


class AcceptRequest(BaseModel):
    """``POST .../reuse``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    """Who accepts."""


def add_reuse(router: APIRouter, hub: Hub) -> None:
    """Add the reuse routes to ``router``."""
    store = hub.store

    @router.get("/campaigns/{reference}/reuse")
    def offers(reference: str) -> Json:
        """Planned runs that have not begun, each with a result of the same cell and seed."""
        row = store.campaign(reference)
        found = [o.model_dump(mode="json") for o in store.reusable(row.id)]
        return {"campaign": row.id, "offers": found}

    @router.post("/campaigns/{reference}/reuse")
    def accept(reference: str, request: AcceptRequest) -> Json:
        """Consent, for the stage that is open now; the leader takes the results over where they still fit."""
        row = store.campaign(reference)
        found = store.reusable(row.id)
        if not found:
            raise Conflict(
                f"no planned run of {row.id!r} has a result of an earlier campaign",
                hint="Offers end when a run begins; confirmatory stages have none.",
            )
        for stage_id in dict.fromkeys(o.stage_id for o in found):
            mine = [o for o in found if o.stage_id == stage_id]
            evidence = {"by": request.by, "offers": [o.model_dump(mode="json") for o in mine]}
            why = f"{request.by} accepts {len(mine)} results of the same cells and seeds in place of new runs"
            store.add_decision(row.id, stage_id, ACCEPT, why, evidence, hub.clock.time())
        hub.changed()
        return {"campaign": row.id, "accepted": [o.model_dump(mode="json") for o in found]}
