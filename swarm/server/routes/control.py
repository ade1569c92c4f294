"""Control routes under ``/swarm`` that are not hot: FastAPI checks their parameters and documents their answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from swarm.protocol.messages import Status
from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.auth import ANY, Gate
from swarm.server.routes.clients import add_clients
from swarm.server.routes.names import accept_names
from swarm.server.routes.records import add_records
from swarm.server.routes.steering import add_steering
from swarm.server.routes.task_sets import add_task_sets
from swarm.server.service.service import SwarmService

MAX_WAIT_S = 600.0
"""Longest hold of ``GET /swarm/status``."""


def control_router(service: SwarmService, gate: Gate) -> APIRouter:
    """Return the router of ``/swarm`` over ``service``."""
    accept_names()
    router = APIRouter(prefix="/swarm")
    _add_engine(router, service, gate)
    add_steering(router, service, gate)
    add_clients(router, service, gate)
    add_task_sets(router, service, gate)
    add_records(router, service, gate)
    return router


def _add_engine(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.get(
        "/status", tags=["engine"], summary="State, step and policy version; can wait for a step"
    )
    async def get_status(
        request: Request,
        after_step: Annotated[
            int | None, Query(description="Hold until step > after_step.")
        ] = None,
        wait_s: Annotated[
            float, Query(ge=0, le=MAX_WAIT_S, description="Longest hold, seconds.")
        ] = 0.0,
        opened: Annotated[
            bool,
            Query(
                description="Hold until the pool's step > after_step instead: in asynchronous mode it is ahead of the weights."
            ),
        ] = False,
    ) -> Status:
        """Any token. Waiting means ``step > after_step``, never *seeing* a state."""
        gate.power(request, ANY)
        if after_step is None:
            return service.status()
        wait = service.wait_step(after_step, wait_s, opened=opened)
        return await unless_abandoned(wait, request.receive)
