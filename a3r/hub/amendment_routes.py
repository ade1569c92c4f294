"""``/api/v1/campaigns/<campaign>/amendments``: what a person adds to the frozen plan of the open stage."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from a3r.core.errors import Conflict
from a3r.core.types import StageState
from a3r.hub.state import Hub

Json = dict[str, Any]


class AmendRequest(BaseModel):
    """``POST .../amendments``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    reason: str
    by: str


def add_amendments(router: APIRouter, hub: Hub) -> None:
    """Add the amendment routes to ``router``."""
    store = hub.store

    @router.post("/campaigns/{reference}/amendments")
    def amend(reference: str, request: AmendRequest) -> Json:
        """Add to the plan of the stage that is open; the plan itself and its hash stay."""
        row = store.campaign(reference)
        opened = (StageState.PLANNED, StageState.RUNNING)
        stage = next((s for s in store.stages(row.id) if s.state in opened), None)
        if stage is None:
            raise Conflict(
                f"campaign {row.id!r} has no open stage",
                hint="A plan can be amended until the results of its stage are analysed.",
            )
        made = store.add_amendment(
            stage.id, {"note": request.what}, request.reason, request.by, hub.clock.time()
        )
        return made.model_dump(mode="json")

    @router.get("/campaigns/{reference}/amendments")
    def amendments(reference: str) -> Json:
        """The campaign's amendments in order."""
        row = store.campaign(reference)
        found = [a.model_dump(mode="json") for a in store.amendments(row.id)]
        return {"campaign": row.id, "amendments": found}
