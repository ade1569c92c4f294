"""Whose token a request carries, and whether that caller may do this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from a3r.core.errors import AuthFailed, Conflict
from a3r.core.pools import TICKET_PREFIX
from a3r.hub.tokens import Role

if TYPE_CHECKING:
    from a3r.hub.state import Hub

TOKEN_NAME = "worker_token"  # noqa: S105 - a key of the request's state
"""Where the name of a worker's own token is kept during a request; absent for the workspace's shared one."""
BOUND_TO = "worker_of_token"
"""Likewise: the worker that this token belonged to when the request came."""
ENLIST_PATH = "/worker/v1/enlist"
REMOTE = "from_outside"
"""Set in the state of a request that came through the door for other hosts: shared tokens are no use there."""


def require(hub: Hub, *allowed: Role) -> Callable[[Request], Awaitable[Role]]:
    """Return a FastAPI dependency that lets ``allowed`` roles pass and answers everybody else 401."""

    async def check(request: Request) -> Role:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not value.strip():
            raise AuthFailed(
                "The request carries no token.", hint="Send 'Authorization: Bearer <token>'."
            )
        token = value.strip()
        # A thread for what asks the database only.
        if hub.tokens.known(token) is None:
            role = await hub.reading(lambda: _role_of(hub, token, request))
        else:
            role = _role_of(hub, token, request)
        if role not in allowed:
            needed = " or ".join(r.value for r in allowed)
            raise AuthFailed(
                f"The {role.value} token has no power to do this.",
                hint=f"It takes the {needed} token.",
            )
        return role

    return check


def _role_of(hub: Hub, token: str, request: Request) -> Role:
    # The database is asked only for what is neither of the two: most requests are of this host's own.
    own = None if hub.tokens.known(token) is not None else hub.store.worker_token(token)
    if own is not None:
        if own.name.startswith(TICKET_PREFIX) and request.url.path != ENLIST_PATH:
            raise AuthFailed(
                "A pool job's ticket opens nothing but its exchange for a token.",
                hint="A pool's jobs start with `python -m a3r.worker.enlist`, which exchanges it.",
            )
        setattr(request.state, TOKEN_NAME, own.name)
        setattr(request.state, BOUND_TO, own.worker_id)
        return Role.WORKER
    role = hub.tokens.role_of(token)
    if getattr(request.state, REMOTE, False):
        raise AuthFailed(
            "The workspace's own tokens are not taken from other hosts.",
            hint="Give the host a token of its own: `a3r worker token NAME`.",
        )
    return role


def token_name_of(request: Request) -> str:
    """Name of the worker's own token that the request came with; empty for the workspace's shared one."""
    return str(getattr(request.state, TOKEN_NAME, None) or "")


def as_worker(hub: Hub, request: Request, worker_id: str) -> None:
    """Check that the caller is this worker: a token of its own serves the worker that used it first, and no other.

    Raises:
        AuthFailed: the token belongs to another worker.
    """
    name = getattr(request.state, TOKEN_NAME, None)
    if name is not None and getattr(request.state, BOUND_TO, None) == worker_id:
        return  # every request but the first
    if name is None:
        return  # the shared token of the workspace: this host's own worker, and hosts that a person set up with it
    try:
        hub.store.bind_worker_token(name, worker_id)
    except Conflict as error:
        raise AuthFailed(error.message, hint=error.hint) from error


def holds(hub: Hub) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency for routes of one attempt: a worker with its own token may write only to attempts that it was given."""

    async def check(request: Request) -> None:
        attempt_id = request.path_params.get("attempt_id")
        if getattr(request.state, TOKEN_NAME, None) is not None and attempt_id is not None:
            await hub.reading(lambda: _check_holder(hub, request, str(attempt_id)))

    return check


def _check_holder(hub: Hub, request: Request, attempt_id: str) -> None:
    holder = hub.store.attempt(attempt_id).worker_id
    if holder is None:
        raise AuthFailed(f"The attempt {attempt_id!r} was given to nobody.", hint="Claim it.")
    as_worker(hub, request, holder)
