"""``/api/v1/hosts``: hosts that a person added over SSH. Only rows and tokens: nothing is dialled from here."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParam
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import NotFound
from a3r.core.ids import new_token
from a3r.core.types import HostState, WorkerState
from a3r.hub.state import Hub
from a3r.store.hosts import host_token
from a3r.store.rows import HostRow

Json = dict[str, Any]
Name = Annotated[str, PathParam(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class HostRequest(BaseModel):
    """``PUT /api/v1/hosts/{name}``."""

    model_config = ConfigDict(extra="forbid")

    address: str = Field(min_length=1, max_length=300)
    options: Json


class TokenRequest(BaseModel):
    """``POST /api/v1/hosts/{name}/token``: what the host has now."""

    model_config = ConfigDict(extra="forbid")

    token_sha256: str = ""
    worker_id: str = ""


class HostWanted(BaseModel):
    """``POST /api/v1/hosts/{name}/state``."""

    model_config = ConfigDict(extra="forbid")

    state: WorkerState


def add_hosts(router: APIRouter, hub: Hub) -> None:
    """Add the routes."""
    store = hub.store

    @router.get("/hosts")
    def hosts() -> Json:
        """All of them, each with its worker."""
        return {"hosts": [_shown(hub, row) for row in store.hosts()]}

    @router.get("/hosts/{name}")
    def host(name: Name) -> Json:
        """One of them."""
        return _shown(hub, store.host(name))

    @router.put("/hosts/{name}")
    def put(name: Name, request: HostRequest) -> Json:
        """Add it or bring it up to date; its worker is wanted from now on. Safe to repeat."""
        row = store.put_host(name, request.address, request.options, hub.clock.time())
        worker_id = store.worker_of_host(name)
        if worker_id and store.wanted_of(worker_id) is WorkerState.REMOVED:
            store.set_worker_state(worker_id, WorkerState.ACTIVE)
        return _shown(hub, row)

    @router.post("/hosts/{name}/token")
    def token(name: Name, request: TokenRequest) -> Json:
        """A token for the host's worker; none when the one that it has is good. It stands nowhere but in this answer."""
        if request.token_sha256 and store.is_worker_token(
            host_token(name), request.token_sha256, request.worker_id
        ):
            return {"token": None}
        fresh = new_token()
        # The host goes on as the worker that it is; the admin, who asks for it over SSH, may say so.
        store.replace_worker_token(host_token(name), fresh, hub.clock.time(), request.worker_id)
        return {"token": fresh}

    _add_wishes(router, hub)


def _add_wishes(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.post("/hosts/{name}/state")
    def want(name: Name, request: HostWanted) -> Json:
        """Drain, take up again, or remove when its attempts are done; the daemon's link sees to the rest."""
        row = store.host(name)
        worker_id = store.worker_of_host(name)
        if request.state is WorkerState.REMOVED:
            row = store.set_host_state(name, HostState.REMOVING, hub.clock.time())
        elif worker_id is None:
            raise NotFound(
                f"The host {name!r} has no worker yet.", hint="'a3r host check' says why."
            )
        if worker_id is not None:
            _want_worker(hub, worker_id, request.state)
        return _shown(hub, row)

    @router.delete("/hosts/{name}")
    def forget(name: Name) -> Json:
        """Forget it at once: its token opens nothing any more. Attempts there are lost when nobody hears of them."""
        row = store.host(name)
        body = _shown(hub, row)
        worker_id = store.worker_of_host(name)
        if worker_id is not None:
            _want_worker(hub, worker_id, WorkerState.REMOVED)
        store.remove_host(name, hub.clock.time())
        return body


def _want_worker(hub: Hub, worker_id: str, state: WorkerState) -> None:
    try:
        hub.store.set_worker_state(worker_id, state)
    except NotFound:
        return  # it had its token, but never came


def _shown(hub: Hub, row: HostRow) -> Json:
    """A host with its worker: ``worker`` is None while none ever came."""
    worker_id = hub.store.worker_of_host(row.name)
    found = next((w for w in hub.store.workers() if w.id == worker_id), None)
    body: Json = {**row.model_dump(mode="json"), "worker": None}
    if found is not None:
        now = hub.clock.time()
        body["worker"] = {
            **found.model_dump(mode="json"),
            "silent_s": round(now - hub.heard.get(found.id, found.seen_at), 1),
            "attempts": [a.id for a in hub.store.attempts_of_worker(found.id)],
        }
    return body
