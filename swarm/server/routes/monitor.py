"""What people and scrapers look at: the overview under ``/swarm``, and the probes ``/health`` and ``/metrics``."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from swarm.protocol.overview import Overview
from swarm.server.keys import Power
from swarm.server.routes.auth import ANY, TRAINERS, Gate
from swarm.server.routes.gauges import Exposition
from swarm.server.service.service import SwarmService


def monitor_router(service: SwarmService, gate: Gate) -> APIRouter:
    """Return the router of the overview over ``service``."""
    router = APIRouter(prefix="/swarm")

    @router.get("/overview", tags=["records"], summary="What goes on now, in one answer")
    async def get_overview(request: Request) -> Overview:
        """Client or admin token; a client token sees no evaluation episodes. Cheap enough for every second."""
        power = gate.power(request, TRAINERS)
        return service.monitor.overview(evals=power is Power.ADMIN)

    return router


def probes(service: SwarmService, gate: Gate) -> list[Route]:
    """Return the routes of machines that watch."""
    exposition = Exposition(service.monitor)

    async def health(_request: Request) -> Response:
        """Say that the process answers; it needs no token and tells nothing else."""
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        """Prometheus metrics; any token."""
        gate.power(request, ANY)
        body, content_type = exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return [Route("/health", health, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])]
