"""The one place where an exception becomes an HTTP answer: the envelope of ``A3RError`` and its status."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from a3r.core.errors import A3RError, NotFound
from a3r.hub.refusals import RequestInvalid

logger = logging.getLogger(__name__)

NAME_HINT = (
    "Names are letters, digits, dot, dash and underscore, and begin with a letter or a digit."
)
DEFECT_HINT = "This is a defect of the hub; .a3r/daemon/daemon.log has the traceback."


def install(app: FastAPI) -> None:
    """Map the whole error tree of ``app``."""
    app.add_exception_handler(A3RError, _on_a3r_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(OverflowError, _on_unstorable)
    app.add_exception_handler(UnicodeEncodeError, _on_unstorable)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_defect)


def answer(error: A3RError) -> Response:
    """``error`` as an HTTP answer."""
    return JSONResponse(error.envelope(), status_code=error.status)


async def _on_a3r_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, A3RError)
    return answer(error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: Any = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    is_name = first["type"] == "string_pattern_mismatch" and where.endswith("name")
    hint = NAME_HINT if is_name else "See /openapi.json."
    return answer(RequestInvalid(f"{request.url.path}: {where}: {first['msg']}.", hint=hint))


async def _on_unstorable(request: Request, _error: Exception) -> Response:
    # JSON's whole numbers have no end, the database's have 64 bits; JSON can hold half a character, UTF-8 can not.
    told = f"{request.url.path}: a number of more than 64 bits, or half a character, can not be stored."
    return answer(RequestInvalid(told, hint="Send numbers below 2**63, and whole characters."))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == NotFound.status:
        return answer(NotFound(f"No route {request.method} {path}.", hint="See /openapi.json."))
    body = RequestInvalid(f"{request.method} {path}: {error.detail}.", hint="See /openapi.json.")
    return JSONResponse(body.envelope(), status_code=error.status_code)


async def _on_defect(_request: Request, error: Exception) -> Response:
    # Only the type is told: a text may quote a secret. Starlette logs the traceback.
    return answer(A3RError(f"The hub failed: {type(error).__name__}.", hint=DEFECT_HINT))


class BodyLimit:
    """ASGI layer that refuses bodies longer than ``max_bytes`` before they are read into memory."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 when the announced length is too large or the length is not announced."""
        if scope["type"] == "http":
            headers: dict[bytes, bytes] = dict(scope["headers"])
            length = headers.get(b"content-length", b"0")
            chunked = b"transfer-encoding" in headers
            if chunked or not length.isdigit() or int(length) > self.max_bytes:
                error = RequestInvalid(
                    f"The body must announce its length and have at most {self.max_bytes} bytes.",
                    hint="Send less at a time.",
                )
                await JSONResponse(error.envelope(), status_code=413)(scope, receive, send)
                return
        await self.app(scope, receive, send)
