"""The one place where an exception becomes an HTTP answer: ``{"error": {message, type, code, hint, details}}``.

Texts never carry a key or a token: unexpected exceptions are named by type only, and paths are shown without the key that
``/e/<key>/...`` carries.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swarm.protocol.errors import EngineFailed, NotFoundError, QueueFull, RequestError, SwarmError

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1
_KEY_IN_PATH = re.compile(r"^/e/[^/]+")
_INTERNAL_HINT = "This is a defect of the server, not of the request; its log has the traceback."


def shown_path(path: str) -> str:
    """Return ``path`` as it may be logged or answered: the key of ``/e/<key>/...`` is masked."""
    return _KEY_IN_PATH.sub("/e/***", path)


def error_headers(status: int) -> dict[str, str]:
    """Headers that tell an SDK whether to retry: 429 later, any other 4xx never, 5xx by its own rules."""
    if status == QueueFull.status:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {"x-should-retry": "false"} if 400 <= status < 500 else {}


def error_response(error: SwarmError, *, status: int | None = None) -> Response:
    """Answer ``error`` with its own status (or ``status``) and the headers that belong to it."""
    code = error.status if status is None else status
    return Response(
        orjson.dumps(error.envelope(), default=str),
        status_code=code,
        headers=error_headers(code),
        media_type="application/json",
    )


def internal_error(error: BaseException) -> SwarmError:
    """What is told of an unexpected exception: its type, never its text (which may quote a secret)."""
    name = type(error).__name__
    return SwarmError(f"The server failed while answering ({name}).", hint=_INTERNAL_HINT)


def shutting_down() -> SwarmError:
    """Answer to whoever still waits when the server ends (503: an SDK may try again)."""
    return EngineFailed(
        "The server shut down before the answer was complete.",
        hint="Ask again when a server listens here; the episode may not survive the restart.",
    )


async def on_swarm_error(request: Request, error: Exception) -> Response:
    """Starlette handler for the whole ``SwarmError`` tree; what is the server's own trouble is logged too."""
    assert isinstance(error, SwarmError)
    log_own_trouble(request, error)
    return error_response(error)


def log_own_trouble(request: Request, error: SwarmError) -> None:
    """Log an error that is the server's own; those of a request are told to whoever sent it."""
    if error.status == 500:
        logger.warning("%s %s: %s", request.method, shown_path(request.url.path), error.message)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette handler for its own 404 and 405 answers."""
    assert isinstance(error, HTTPException)
    path = shown_path(request.url.path)
    if error.status_code == NotFoundError.status:
        hint = "The routes are listed in GET /openapi.json; agents use <base_url>/chat/completions."
        return error_response(NotFoundError(f"No route {request.method} {path}.", hint=hint))
    failure = RequestError(
        f"{request.method} {path}: {error.detail}.", hint="See GET /openapi.json."
    )
    response = error_response(failure, status=error.status_code)
    response.headers.update(error.headers or {})
    return response


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """FastAPI handler for query or path values of a wrong type; the first problem is named."""
    assert isinstance(error, RequestValidationError)
    first: Any = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    path = shown_path(request.url.path)
    return error_response(
        RequestError(f"{path}: {where}: {first['msg']}.", hint="See GET /openapi.json.")
    )


class ErrorBoundary:
    """Outermost ASGI layer: an exception that nothing else answered is logged and becomes a 500 envelope.

    When the answer has already begun the exception goes on, so that the server cuts the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app; answer 500 when it raises before the response started."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except asyncio.CancelledError:
            # Only the server's shutdown cancels a request from outside.
            if not started:
                await error_response(shutting_down())(scope, receive, send)
        except Exception as error:
            logger.exception("%s %s failed", scope["method"], shown_path(scope["path"]))
            if started:
                raise
            body = orjson.dumps(internal_error(error).envelope())
            await Response(body, status_code=500, media_type="application/json")(
                scope, receive, send
            )
