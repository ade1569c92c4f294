"""Routes that steer a server: its configuration, its engine, and who may do so."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from swarm.protocol.clients import ControllerLease, ControllerRequest
from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import ConfigChange, ConfigRecord, Status
from swarm.server.routes.auth import ADMIN_ONLY, ANY, Gate, asker
from swarm.server.routes.bodies import body_as, parse_object, read_body, takes, validate_config
from swarm.server.service.service import SwarmService


def add_steering(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    """Add ``/config``, ``/engine`` and ``/controller`` to ``router``."""
    _add_config(router, service, gate)
    _add_engine(router, service, gate)


def _add_config(router: APIRouter, service: SwarmService, gate: Gate) -> None:
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
    async def put_config(
        request: Request,
        dry_run: Annotated[
            bool, Query(description="Answer what would change and what that takes; change nothing.")
        ] = False,
    ) -> list[ConfigChange]:
        """Admin token. Answers what changed. While the engine runs only `step` changes are taken, from the next step on.

        409 when a key needs a restart (each is named), or while another client holds the controller lease.
        """
        who = asker(request, gate.power(request, ADMIN_ONLY))
        data = parse_object(await read_body(request))
        config = validate_config(TrainConfig, data)
        return await service.configure(config, who=who, dry_run=dry_run)

    @router.get(
        "/config/changes",
        tags=["engine"],
        summary="What was changed since the run began, and by whom",
    )
    async def get_config_changes(request: Request) -> list[ConfigRecord]:
        """Any token. In order of acceptance."""
        gate.power(request, ANY)
        return service.config_changes()


def _add_engine(router: APIRouter, service: SwarmService, gate: Gate) -> None:
    @router.post("/engine/start", tags=["engine"], summary="Boot the engine and begin to serve")
    async def start_engine(request: Request) -> Status:
        """Admin token. Answers when the engine is ready; a second start meanwhile waits for the same engine."""
        return await service.start(who=asker(request, gate.power(request, ADMIN_ONLY)))

    @router.post(
        "/engine/stop", tags=["engine"], summary="Stop the engine; open episodes are aborted"
    )
    async def stop_engine(request: Request) -> Status:
        """Admin token. Safe to repeat."""
        return await service.stop(who=asker(request, gate.power(request, ADMIN_ONLY)))

    @router.post(
        "/controller",
        tags=["engine"],
        summary="Take, renew or give back the controller lease",
        openapi_extra=takes(ControllerRequest),
    )
    async def ask_controller(request: Request) -> ControllerLease:
        """Admin token. While a client holds it only that one (header `X-Swarm-Client`) configures, starts and stops."""
        gate.power(request, ADMIN_ONLY)
        return service.controller(await body_as(request, ControllerRequest))
