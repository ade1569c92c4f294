"""``/api/v1``: tokens of single workers, and what a person wants of a worker (drain, remove)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParam
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.ids import new_token
from a3r.core.types import WorkerState
from a3r.hub.state import Hub

Json = dict[str, Any]
Name = Annotated[str, PathParam(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]


class NewToken(BaseModel):
    """``POST /api/v1/worker-tokens``."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")


class Wanted(BaseModel):
    """``POST /api/v1/workers/{id}/state``."""

    model_config = ConfigDict(extra="forbid")

    state: WorkerState


def add_workers(router: APIRouter, hub: Hub) -> None:
    """Add the routes."""

    @router.post("/worker-tokens")
    def mint(request: NewToken) -> Json:
        """Mint a token for one worker; this answer is the only place where it ever stands."""
        token = new_token()
        row = hub.store.add_worker_token(request.name, token, hub.clock.time())
        return {**row.model_dump(mode="json"), "token": token}

    @router.get("/worker-tokens")
    def tokens() -> Json:
        """All of them, without the tokens."""
        return {"tokens": [t.model_dump(mode="json") for t in hub.store.worker_tokens()]}

    @router.delete("/worker-tokens/{name}")
    def revoke(name: Name) -> Json:
        """Take a token back."""
        return hub.store.revoke_worker_token(name, hub.clock.time()).model_dump(mode="json")

    @router.post("/workers/{worker_id}/state")
    def want(worker_id: str, request: Wanted) -> Json:
        """Say what is wanted of a worker; it hears of it on its next heartbeat."""
        row = hub.store.set_worker_state(worker_id, request.state)
        held = [a.id for a in hub.store.attempts_of_worker(worker_id)]
        return {**row.model_dump(mode="json"), "attempts": held}
