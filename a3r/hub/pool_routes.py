"""``/api/v1/pools``: clusters that are asked for workers. What an engine is told and when is ``a3r.pools``'s."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParam
from pydantic import BaseModel, ConfigDict

from a3r.core.pools import PoolJobState, PoolKind, PoolOptions, PoolState
from a3r.hub.state import Hub
from a3r.store.rows import PoolRow

Json = dict[str, Any]
Name = Annotated[str, PathParam(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")]
RECENT = 20
"""Jobs that are shown of a pool, besides those that live."""


class PoolRequest(BaseModel):
    """``PUT /api/v1/pools/{name}``."""

    model_config = ConfigDict(extra="forbid")

    kind: PoolKind
    options: PoolOptions


class Removal(BaseModel):
    """``POST /api/v1/pools/{name}/remove``."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False
    """End its jobs at once; their attempts are tried again elsewhere."""


def add_pools(router: APIRouter, hub: Hub) -> None:
    """Add the routes."""
    store = hub.store

    @router.put("/pools/{name}")
    def put(name: Name, request: PoolRequest) -> Json:
        """Add a pool, or bring it up to date."""
        options = hub.hooks.check_pool(request.kind, request.options)
        return _shown(hub, store.add_pool(name, request.kind, options, hub.clock.time()))

    @router.get("/pools")
    def pools() -> Json:
        """All of them."""
        return {"pools": [_shown(hub, pool) for pool in store.pools()]}

    @router.get("/pools/{name}")
    def show(name: Name) -> Json:
        """One, with what became of its jobs."""
        return _shown(hub, store.pool(name))

    @router.post("/pools/{name}/remove")
    def remove(name: Name, request: Removal) -> Json:
        """Ask nothing more of it; it is gone once its jobs are over."""
        state = PoolState.ENDING if request.now else PoolState.REMOVING
        if store.pool(name).state is PoolState.REMOVED:
            state = PoolState.REMOVED
        return _shown(hub, store.set_pool_state(name, state, hub.clock.time()))


def _shown(hub: Hub, pool: PoolRow) -> Json:
    jobs = hub.store.pool_jobs(pool.name)
    live = [j for j in jobs if j.ended_at is None]
    over = [j for j in jobs if j.ended_at is not None][-RECENT:]
    now = hub.clock.time()
    return {
        **pool.model_dump(mode="json"),
        "options": pool.options.model_dump(mode="json", exclude_defaults=True),
        "max_workers": pool.options.max_workers,
        "working": sum(j.state is PoolJobState.WORKING for j in live),
        "coming": sum(j.state is not PoolJobState.WORKING for j in live),
        "jobs": [
            {
                **j.model_dump(mode="json"),
                "attempts": [a.id for a in hub.store.attempts_of_worker(j.worker_id)]
                if j.worker_id and j.ended_at is None
                else [],
                "age_s": round(now - j.submitted_at, 1),
            }
            for j in [*over, *live]
        ],
    }
