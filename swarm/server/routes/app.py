"""The server's ASGI app: hot routes, control routes, one error mapping and the OpenAPI document that describes them all."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from swarm.protocol.errors import SwarmError
from swarm.server.keys import Tokens
from swarm.server.routes.abandon import ClientLeft
from swarm.server.routes.auth import Gate
from swarm.server.routes.control import control_router
from swarm.server.routes.dialects.table import dialect_routes
from swarm.server.routes.episodes import EpisodeRoutes
from swarm.server.routes.errors import (
    ErrorBoundary,
    on_http_exception,
    on_invalid_request,
    on_swarm_error,
)
from swarm.server.routes.hot import SwarmApp
from swarm.server.routes.monitor import monitor_router, probes
from swarm.server.routes.openapi import describe
from swarm.server.routes.page import page_router
from swarm.server.service.service import SwarmService
from swarm.server.tickets import PageTickets


def create_app(service: SwarmService, tokens: Tokens, *, trust_proxy: bool = False) -> SwarmApp:
    """Return the app over ``service``.

    Args:
        service: Opened; the app neither starts nor closes it.
        tokens: The role tokens of the same state directory.
        trust_proxy: Believe ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` when a grant's URL is made.
    """
    gate = Gate(tokens, service.client_notes)
    app = SwarmApp(docs_url=None, redoc_url=None, redirect_slashes=False)
    app.take_short(
        [
            *dialect_routes(service, gate),
            *EpisodeRoutes(service, gate, trust_proxy=trust_proxy).routes(),
            *probes(service, gate),
        ]
    )
    app.include_router(control_router(service, gate))
    app.include_router(monitor_router(service, gate))
    app.include_router(
        page_router(service, gate, PageTickets(tokens.signing), trust_proxy=trust_proxy)
    )
    app.add_exception_handler(SwarmError, on_swarm_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(ClientLeft, _nobody_listens)
    app.add_middleware(ErrorBoundary)
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(describe(app))
        return document

    app.openapi = openapi
    return app


async def _nobody_listens(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)
