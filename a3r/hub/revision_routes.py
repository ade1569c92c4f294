"""``/api/v1/revisions``: what repairs made of a blueprint's client, and a person's verdict where one is asked for."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.types import RevisionState
from a3r.hub.state import Hub
from a3r.store.rows import RevisionRow
from a3r.store.store import Store

Json = dict[str, Any]


class RevisionVerdict(BaseModel):
    """A verdict on one revision of a blueprint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: int = Field(ge=1)
    verdict: Literal[RevisionState.APPROVED, RevisionState.REJECTED]
    by: str = Field(min_length=1)


def add_revisions(router: APIRouter, hub: Hub) -> None:
    """Add the routes of revisions to ``router``."""
    store = hub.store

    @router.get("/campaigns/{reference}/revisions")
    def of_campaign(reference: str) -> Json:
        """Every revision of a campaign's clients, in order, without their diffs."""
        row = store.campaign(reference)
        return {"campaign": row.id, "revisions": _lines(store, store.revisions(row.id))}

    @router.get("/revisions/{reference:path}")
    def of_blueprint(reference: str) -> Json:
        """A blueprint's revisions with their diffs."""
        row = store.blueprint(reference)
        found = store.revisions(row.campaign_id, row.id)
        return {
            "blueprint": row.name,
            "campaign": row.campaign_id,
            "revisions": [r.model_dump(mode="json") for r in found],
        }

    @router.post("/revisions/{reference:path}")
    def decide(reference: str, request: RevisionVerdict) -> Json:
        """Approve or reject one; the same verdict again changes nothing."""
        row = store.blueprint(reference)
        found = store.revision(row.id, request.revision)
        done = store.decide_revision(found.id, request.verdict, request.by, hub.clock.time())
        hub.changed()
        return {"blueprint": row.name, "revision": done.ordinal, "state": done.state.value}


def _lines(store: Store, rows: list[RevisionRow]) -> list[Json]:
    names = {b.id: b.name for b in store.blueprints(rows[0].campaign_id)} if rows else {}
    return [
        {
            "blueprint": names[r.blueprint_id],
            "revision": r.ordinal,
            "state": r.state.value,
            "by": r.by,
            "reason": r.reason,
            "failure": r.evidence.get("failure"),
            "functions": r.evidence.get("functions", []),
            "at": r.at,
        }
        for r in rows
    ]
