"""Shared task queues: one list of tasks a task set, that all its clients take from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from swarm.protocol.pool import TaskQueue, TaskQueueInfo
from swarm.server.routes.auth import TRAINERS, Gate
from swarm.server.routes.bodies import body_as, takes
from swarm.server.service.service import SwarmService


def add_task_sets(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    """Add the routes to the router of ``/swarm``."""

    @router.put(
        "/task_sets/{name:name}",
        tags=["episodes"],
        summary="Set the shared queue of a task set",
        openapi_extra=takes(TaskQueue),
    )
    async def put_task_set(
        name: Annotated[str, Path(max_length=128, description="The task set.")], request: Request
    ) -> TaskQueueInfo:
        """Client or admin token. The same list again changes nothing; another one replaces what was not handed out."""
        gate.power(request, TRAINERS)
        return service.put_task_queue(name, await body_as(request, TaskQueue))

    @router.get("/task_sets", tags=["episodes"], summary="Where the shared queues stand")
    async def get_task_sets(request: Request) -> list[TaskQueueInfo]:
        """Client or admin token. By name."""
        gate.power(request, TRAINERS)
        return service.task_queues()
