"""Errors as OpenAI's SDKs read them: ``{"error": {"message", "type", "param", "code"}}``, with what our own client needs beside it."""

from __future__ import annotations

from typing import Any

import orjson

from swarm.protocol.errors import SwarmError

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    410: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
"""HTTP status -> type; every other one is a ``server_error``."""


LONGEST_MESSAGE = 1000


def cut(message: str) -> str:
    """Return an error's text; one that repeats a long value of the request is cut."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


def openai_envelope(error: SwarmError) -> dict[str, Any]:
    """Return the body for ``error``. ``class`` names our own error, so that the swarm client raises the same one again."""
    own = error.envelope()["error"]
    own["message"] = cut(own["message"])
    kind = TYPES.get(error.status, "server_error")
    known = {"type": kind, "param": error.details.get("parameter"), "class": own["type"]}
    return {"error": own | known}


def error_block(error: SwarmError) -> bytes:
    """Return the event that ends a stream that failed after it had begun."""
    return b"data: " + orjson.dumps(openai_envelope(error), default=str) + b"\n\n"
