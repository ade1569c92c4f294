"""Errors in Anthropic's envelope: ``{"type": "error", "error": {"type", "message"}, "request_id"}``."""

from __future__ import annotations

import secrets
from typing import Any

from swarm.protocol.errors import SwarmError
from swarm.server.routes.dialects.common.errors import cut
from swarm.server.routes.dialects.messages.stream import event

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    410: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""HTTP status -> error type (Anthropic, "Errors"); every other one is an ``api_error``."""


def envelope(error: SwarmError, *, request_id: str = "") -> dict[str, Any]:
    """Return the body for ``error``; ``code``, ``hint`` and ``details`` of our own tree come along."""
    own = {"code": error.code, "hint": error.hint, "details": error.details}
    text = cut(error.message) + (f" hint: {error.hint}" if error.hint else "")
    kind = TYPES.get(error.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": text, **own},
        "request_id": request_id or f"req_{secrets.token_hex(8)}",
    }


def error_event(error: SwarmError) -> bytes:
    """Return the event that ends a stream that failed after it had begun."""
    return event("error", error=envelope(error)["error"])
