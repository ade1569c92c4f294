"""How a worker of a pool gets its token: a ticket that is good for one exchange travels through the cluster's engine, the token never does.

Engines show and log the environment of jobs. A ticket that was used is worth nothing; one that somebody else used first makes
the job fail, in sight. Both are taken back when the job is over.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from a3r.core.errors import AuthFailed, Conflict
from a3r.core.ids import new_token
from a3r.core.pools import LIVE_JOBS, ticket_name, token_name
from a3r.core.wire import EnlistReply, EnlistRequest, WorkerRegistration
from a3r.hub.auth import TOKEN_NAME
from a3r.hub.state import Hub

Json = dict[str, Any]


def add_enlisting(router: APIRouter, hub: Hub) -> None:
    """Add the exchange to the workers' routes."""

    @router.post("/enlist")
    def enlist(request: EnlistRequest, http: Request) -> EnlistReply:
        """Exchange a pool job's ticket for its worker's token; works once."""
        if getattr(http.state, TOKEN_NAME, None) != ticket_name(request.pool_job):
            raise AuthFailed(
                f"This is not the ticket of the pool job {request.pool_job!r}.",
                hint="A ticket works once, and only for its own job.",
            )
        job = hub.store.pool_job(request.pool_job)
        if job.state not in LIVE_JOBS:
            raise Conflict(
                f"The pool job {job.id!r} is {job.state.value}.", hint="Let the job end."
            )
        now, token = hub.clock.time(), new_token()
        hub.store.revoke_worker_token(ticket_name(job.id), now)
        hub.store.add_worker_token(token_name(job.id), token, now)
        return EnlistReply(token=token)


def join_pool(hub: Hub, http: Request, request: WorkerRegistration) -> None:
    """A worker that a pool job started has come.

    Raises:
        AuthFailed: it says so, but its token is not that job's.
    """
    if not request.pool_job:
        return
    if getattr(http.state, TOKEN_NAME, None) != token_name(request.pool_job):
        raise AuthFailed(
            f"The worker says that it comes from the pool job {request.pool_job!r}, and its token is not that job's.",
            hint="Only a job that the pool asked for can bring such a worker.",
        )
    hub.store.join_pool(request.pool_job, request.worker_id)
