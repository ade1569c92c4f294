"""Routes that read what is recorded: episodes, the pool, metrics, events, checkpoints; and the one that saves a checkpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Request

from swarm.protocol.errors import RequestError
from swarm.protocol.messages import LARGEST, CheckpointInfo
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.records import EpisodeTrace, StepMetrics
from swarm.server.keys import Power
from swarm.server.routes.auth import ADMIN_ONLY, ANY, TRAINERS, Gate
from swarm.server.routes.sse import EventStream
from swarm.server.service.service import SwarmService

RECORDED = Query(ge=-LARGEST, le=LARGEST)


def add_records(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    """Add ``/episodes`` (reading), ``/pool``, ``/metrics``, ``/events`` and ``/checkpoints`` to ``router``."""
    _add_episodes(router, service, gate)
    _add_steps(router, service, gate)
    _add_checkpoints(router, service, gate)


def _add_episodes(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    def read(request: Request, episode_id: str, *, calls: bool) -> EpisodeTrace:
        power = gate.power(request, ANY)
        trace = service.trace(episode_id, calls=calls and power is Power.ADMIN)
        gate.require_episode(trace, power, read=True)
        return (
            service.trace(episode_id, calls=calls) if calls and power is not Power.ADMIN else trace
        )

    @router.get("/episodes/{episode_id}", tags=["episodes"], summary="An episode without its calls")
    async def get_episode(episode_id: str, request: Request) -> EpisodeTrace:
        """Admin: any; client: train episodes and its own; eval: any eval episode."""
        return read(request, episode_id, calls=False)

    @router.get(
        "/episodes/{episode_id}/trace",
        tags=["episodes"],
        summary="An episode with every captured call",
    )
    async def get_trace(episode_id: str, request: Request) -> EpisodeTrace:
        """As above, with token ids, log-probabilities and the fate of every call."""
        return read(request, episode_id, calls=True)


def _add_steps(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.get("/pool", tags=["episodes"], summary="What the open step has and needs")
    async def get_pool(request: Request) -> PoolSnapshot:
        """Client or admin token."""
        gate.power(request, TRAINERS)
        return service.pool()

    @router.get("/metrics", tags=["records"], summary="One record a completed step")
    async def get_metrics(
        request: Request,
        after_step: Annotated[int, RECORDED, Query(description="Only later steps.")] = 0,
    ) -> list[StepMetrics]:
        """Any token. In order of steps; missing values are null, never 0."""
        gate.power(request, ANY)
        return service.metrics(after_step)

    @router.get(
        "/events",
        tags=["records"],
        summary="Events as they happen (SSE)",
        responses={
            200: {
                "description": "One `Event` a message, with its `seq` as id.",
                "content": {"text/event-stream": {}},
            }
        },
    )
    async def get_events(
        request: Request,
        after_seq: Annotated[
            int | None,
            RECORDED,
            Query(description="Only later events; default: Last-Event-ID, else all."),
        ] = None,
    ) -> EventStream:
        """Admin token. Never ends by itself; a comment each few seconds while nothing happens."""
        gate.power(request, ADMIN_ONLY)
        start = after_seq if after_seq is not None else _last_event(request)
        return EventStream(_event_blocks(service, start))


def _last_event(request: Request) -> int:
    """Return the last event that a reader who comes again has; 0 for one who comes first."""
    told = request.headers.get("last-event-id", "")
    if not told:
        return 0
    if not (told.isascii() and told.isdecimal() and len(told) < 19):
        raise RequestError(
            f"The header Last-Event-ID is {told[:32]!r}, which is no event of this server.",
            hint="Send the `id` of the last event that you have, or leave the header out.",
        )
    return int(told)


async def _event_blocks(service: SwarmService, after_seq: int) -> AsyncGenerator[bytes, None]:
    async with aclosing(service.events(after_seq)) as events:
        async for event in events:
            yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode()


def _add_checkpoints(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.get("/checkpoints", tags=["records"], summary="Saved checkpoints, oldest first")
    async def list_checkpoints(request: Request) -> list[CheckpointInfo]:
        """Admin token."""
        gate.power(request, ADMIN_ONLY)
        return service.checkpoints()

    @router.post("/checkpoints", tags=["records"], summary="Save a checkpoint now")
    async def save_checkpoint(request: Request) -> CheckpointInfo:
        """Admin token. 409 while no engine runs."""
        gate.power(request, ADMIN_ONLY)
        return await service.save_checkpoint()
