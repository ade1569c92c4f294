"""Control routes under ``/swarm`` that are not hot: FastAPI checks their parameters and documents their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import (
    CheckpointInfo,
    ClientLease,
    ClientRegistration,
    ConfigChange,
    EpisodeTrace,
    EvalRoundClose,
    PoolSnapshot,
    Status,
    StepMetrics,
)
from swarm.server.keys import Power
from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.auth import ADMIN_ONLY, ANY, EVALUATORS, TRAINERS, Gate
from swarm.server.routes.bodies import body_as, parse_object, read_body, validate_config
from swarm.server.routes.sse import EventStream
from swarm.server.service.service import SwarmService

MAX_WAIT_S = 600.0
"""Longest hold of ``GET /swarm/status``."""


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that the route reads itself (bounded, with the envelope's errors)."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def control_router(service: SwarmService, gate: Gate) -> APIRouter:
    """Return the router of ``/swarm`` over ``service``."""
    router = APIRouter(prefix="/swarm")
    _add_engine(router, service, gate)
    _add_clients(router, service, gate)
    _add_records(router, service, gate)
    _add_checkpoints(router, service, gate)
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
    ) -> Status:
        """Any token. Waiting means ``step > after_step``, never *seeing* a state."""
        gate.power(request, ANY)
        if after_step is None:
            return service.status()
        return await unless_abandoned(service.wait_step(after_step, wait_s), request.receive)

    @router.get("/config", tags=["engine"], summary="The training configuration, defaults included")
    async def get_config(request: Request) -> TrainConfig:
        """Any token. 409 when none was set yet."""
        gate.power(request, ANY)
        return service.config

    @router.put(
        "/config",
        tags=["engine"],
        summary="Set the training configuration",
        openapi_extra=takes(TrainConfig),
    )
    async def put_config(request: Request) -> list[ConfigChange]:
        """Admin token. Only while the engine is OFFLINE; answers what changed."""
        gate.power(request, ADMIN_ONLY)
        data = parse_object(await read_body(request))
        return await service.configure(validate_config(TrainConfig, data))

    @router.post("/engine/start", tags=["engine"], summary="Boot the engine and begin to serve")
    async def start_engine(request: Request) -> Status:
        """Admin token. Answers when the engine is ready; a second start meanwhile waits for the same engine."""
        gate.power(request, ADMIN_ONLY)
        return await service.start()

    @router.post(
        "/engine/stop", tags=["engine"], summary="Stop the engine; open episodes are aborted"
    )
    async def stop_engine(request: Request) -> Status:
        """Admin token. Safe to repeat."""
        gate.power(request, ADMIN_ONLY)
        return await service.stop()


def _add_clients(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.post(
        "/clients",
        tags=["clients"],
        summary="Register a client",
        openapi_extra=takes(ClientRegistration),
    )
    async def register(request: Request) -> ClientLease:
        """Any token. A known id registers anew: its open episodes are aborted."""
        power = gate.power(request, ANY)
        registration = await body_as(request, ClientRegistration)
        gate.claim(registration.client_id, power)
        return service.register(registration)

    @router.post(
        "/clients/{client_id}/heartbeat", tags=["clients"], summary="Renew a client's lease"
    )
    async def heartbeat(client_id: str, request: Request) -> ClientLease:
        """Any token. 404 when the lease ended: register again."""
        gate.require_client(client_id, gate.power(request, ANY))
        return service.heartbeat(client_id)

    @router.post(
        "/evals",
        tags=["clients"],
        summary="Close an eval round",
        openapi_extra=takes(EvalRoundClose),
    )
    async def close_eval_round(request: Request) -> Status:
        """Eval or admin token. Opens the gate of a gated step."""
        gate.power(request, EVALUATORS)
        return await service.close_eval_round(await body_as(request, EvalRoundClose))


def _add_records(router: APIRouter, service: SwarmService, gate: Gate) -> None:
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

    @router.get("/pool", tags=["episodes"], summary="What the open step has and needs")
    async def get_pool(request: Request) -> PoolSnapshot:
        """Client or admin token."""
        gate.power(request, TRAINERS)
        return service.pool()

    @router.get("/metrics", tags=["records"], summary="One record a completed step")
    async def get_metrics(
        request: Request, after_step: Annotated[int, Query(description="Only later steps.")] = 0
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
            int | None, Query(description="Only later events; default: Last-Event-ID, else all.")
        ] = None,
    ) -> EventStream:
        """Admin token. Never ends by itself; a comment each few seconds while nothing happens."""
        gate.power(request, ADMIN_ONLY)
        last = request.headers.get("last-event-id", "")
        start = after_seq if after_seq is not None else int(last) if last.isdigit() else 0
        return EventStream(_event_blocks(service, start))


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
