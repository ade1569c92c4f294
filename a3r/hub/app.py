"""The hub's ASGI app: routes for workers, routes for the command line, one error mapping."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query

from a3r.core.clock import SystemClock
from a3r.core.ports import Clock
from a3r.hub.amendment_routes import add_amendments
from a3r.hub.auth import require
from a3r.hub.blueprint_routes import add_blueprints
from a3r.hub.campaign_routes import add_campaigns
from a3r.hub.command_routes import add_asking
from a3r.hub.errors import BodyLimit, install
from a3r.hub.host_routes import add_workers
from a3r.hub.pool_routes import add_pools
from a3r.hub.remote_routes import add_hosts
from a3r.hub.reuse_routes import add_reuse
from a3r.hub.revision_routes import add_revisions
from a3r.hub.run_routes import add_runs
from a3r.hub.schedule_routes import add_schedules
from a3r.hub.server_routes import server_router
from a3r.hub.settings import HubSettings
from a3r.hub.state import Hooks, Hub
from a3r.hub.tokens import HubTokens, Role
from a3r.hub.worker_routes import worker_router
from a3r.store.store import Store

Json = dict[str, Any]


def create_app(
    store: Store,
    tokens: HubTokens,
    settings: HubSettings,
    hooks: Hooks,
    *,
    clock: Clock | None = None,
) -> FastAPI:
    """Return the app over ``store``; ``app.state.hub`` is its :class:`Hub`, to be closed by the caller.

    Args:
        store: Opened; the app neither opens nor closes it.
        tokens: The admin's and the worker's token.
        settings: Resolved settings.
        hooks: The way to the leader and to the process that serves the app.
        clock: For tests; default the machine's.
    """
    hub = Hub(store, tokens, settings, hooks, clock or SystemClock())
    hub.follow_store()
    app = FastAPI(title="a3r hub", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.hub = hub
    install(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    _add_health(app, hub)
    app.include_router(worker_router(hub))
    app.include_router(server_router(hub))
    app.include_router(_api_router(hub))
    return app


def _add_health(app: FastAPI, hub: Hub) -> None:
    @app.get("/health")
    def health(challenge: Annotated[str, Query(max_length=128)] = "") -> Json:
        """Say that the process answers; needs no token. A challenge is answered with a proof of who it is."""
        body: Json = {"status": "ok"}
        if challenge:
            body["proof"] = hub.tokens.proof(challenge, hub.settings.epoch)
        return body


def _api_router(hub: Hub) -> APIRouter:
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(require(hub, Role.ADMIN))])

    @router.get("/daemon")
    def daemon() -> Json:
        """The process, its leader and the workers it knows."""
        now = hub.clock.time()
        workers = [
            {
                **w.model_dump(mode="json"),
                "silent_s": round(max(0.0, now - hub.heard.get(w.id, w.seen_at)), 1),
                "trouble": hub.troubles.get(w.id, ""),
            }
            for w in hub.store.workers()
        ]
        return {
            "pid": os.getpid(),
            "epoch": hub.settings.epoch,
            "started_at": hub.settings.started_at,
            "workspace": str(hub.settings.workspace),
            "leader": hub.hooks.leader_report(),
            "workers": workers,
        }

    @router.post("/shutdown")
    def shutdown() -> Json:
        """End the process in order; workers and attempts go on."""
        hub.hooks.on_shutdown()
        return {"stopping": True}

    add_campaigns(router, hub)
    add_revisions(router, hub)
    add_blueprints(router, hub)
    add_runs(router, hub)
    add_schedules(router, hub)
    add_reuse(router, hub)
    add_amendments(router, hub)
    add_asking(router, hub)
    add_workers(router, hub)
    add_pools(router, hub)
    add_hosts(router, hub)
    return router
