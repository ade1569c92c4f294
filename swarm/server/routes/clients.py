"""Routes of clients: who they are, what they agree to, and how far their tasks and evaluations are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from swarm.protocol.clients import (
    AgreeReply,
    AgreeRequest,
    ClientInfo,
    ClientLease,
    ClientRegistration,
    Heartbeat,
    TaskCursor,
)
from swarm.protocol.messages import EvalRoundClose, Status
from swarm.server.routes.auth import ANY, EVALUATORS, TRAINERS, Gate
from swarm.server.routes.bodies import body_as, takes
from swarm.server.service.service import SwarmService


def add_clients(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    """Add ``/clients`` and ``/evals`` to ``router``."""
    _add_leases(router, service, gate)
    _add_rounds(router, service, gate)


def _add_leases(router: APIRouter, service: SwarmService, gate: Gate) -> None:
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
        "/clients/{client_id:name}/heartbeat",
        tags=["clients"],
        summary="Renew a client's lease",
        openapi_extra=takes(Heartbeat, required=False),
    )
    async def heartbeat(client_id: str, request: Request) -> ClientLease:
        """Any token. 404 when the lease ended: register again; 409 when a later instance took the id: stop."""
        gate.require_client(client_id, gate.power(request, ANY))
        beat = await body_as(request, Heartbeat)
        return service.heartbeat(client_id, beat.instance)

    @router.post(
        "/clients/{client_id:name}/cursor",
        tags=["clients"],
        summary="Keep where a client stands in its order of tasks",
        openapi_extra=takes(TaskCursor),
    )
    async def set_cursor(client_id: str, request: Request) -> ClientLease:
        """Any token; renews the lease. 404 when the lease ended: register again."""
        gate.require_client(client_id, gate.power(request, ANY))
        return service.set_cursor(client_id, await body_as(request, TaskCursor))


def _add_rounds(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.post(
        "/clients/{client_id:name}/agree",
        tags=["clients"],
        summary="Agree to take the open step (policies C4 and C5)",
        openapi_extra=takes(AgreeRequest),
    )
    async def agree(client_id: str, request: Request) -> AgreeReply:
        """Client or admin token; a registered trainer. Safe to repeat. 409 when the step has passed or the policy asks nobody."""
        gate.require_client(client_id, gate.power(request, TRAINERS))
        return service.agree(client_id, await body_as(request, AgreeRequest))

    @router.get("/clients", tags=["clients"], summary="Who is connected, and what each has done")
    async def list_clients(
        request: Request,
        gone: Annotated[bool, Query(description="Also those without a lease.")] = False,
    ) -> list[ClientInfo]:
        """Client or admin token. In order of registration; counts are of this server process's life."""
        gate.power(request, TRAINERS)
        return service.clients(gone=gone)

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
