"""The server's ASGI app: hot routes, control routes, one error mapping and the OpenAPI document that describes them all."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from swarm.protocol.errors import SwarmError
from swarm.server.keys import Tokens
from swarm.server.routes.abandon import ClientLeft
from swarm.server.routes.auth import ANY, Gate
from swarm.server.routes.control import control_router
from swarm.server.routes.episodes import EpisodeRoutes
from swarm.server.routes.errors import (
    ErrorBoundary,
    on_http_exception,
    on_invalid_request,
    on_swarm_error,
)
from swarm.server.routes.gauges import prometheus_text
from swarm.server.routes.inference import InferenceRoutes
from swarm.server.routes.openapi import describe
from swarm.server.service.service import SwarmService


def create_app(service: SwarmService, tokens: Tokens, *, trust_proxy: bool = False) -> FastAPI:
    """Return the app over ``service``.

    Args:
        service: Opened; the app neither starts nor closes it.
        tokens: The role tokens of the same state directory.
        trust_proxy: Believe ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` when a grant's URL is made.
    """
    gate = Gate(tokens)
    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False)
    # The routes that every call of every agent takes come first in the table.
    app.router.routes[:0] = [
        *InferenceRoutes(service).routes(),
        *EpisodeRoutes(service, gate, trust_proxy=trust_proxy).routes(),
        *_probes(service, gate),
    ]
    app.include_router(control_router(service, gate))
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


def _probes(service: SwarmService, gate: Gate) -> list[Route]:
    async def health(_request: Request) -> Response:
        """Say that the process answers; it needs no token and tells nothing else."""
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        """Prometheus gauges; any token."""
        gate.power(request, ANY)
        status = service.status()
        recent = service.metrics(status.step - 1)
        return PlainTextResponse(prometheus_text(status, recent[-1] if recent else None))

    return [Route("/health", health, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])]


async def _nobody_listens(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)
