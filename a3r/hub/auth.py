"""Whose token a request carries, and whether that role may do this."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from a3r.core.errors import AuthFailed
from a3r.hub.tokens import HubTokens, Role


def require(tokens: HubTokens, *allowed: Role) -> Callable[[Request], Role]:
    """Return a FastAPI dependency that lets ``allowed`` roles pass and answers everybody else 401."""

    def check(request: Request) -> Role:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not value.strip():
            raise AuthFailed(
                "The request carries no token.", hint="Send 'Authorization: Bearer <token>'."
            )
        role = tokens.role_of(value.strip())
        if role not in allowed:
            needed = " or ".join(r.value for r in allowed)
            raise AuthFailed(
                f"The {role.value} token has no power to do this.",
                hint=f"It takes the {needed} token.",
            )
        return role

    return check
