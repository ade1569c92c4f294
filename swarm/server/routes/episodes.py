"""Grant, finish and abort: the control routes that run once an episode, as plain Starlette routes."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.protocol.episodes import AbortRequest, AgentKeyRequest, FinishRequest, GrantRequest
from swarm.server.keys import Power
from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.auth import ANY, Gate
from swarm.server.routes.bodies import body_as
from swarm.server.service.service import SwarmService


def dialled_url(request: Request, *, trust_proxy: bool) -> str:
    """Return ``scheme://host`` as the client dialled it, so that a grant's URL works through tunnels and proxies.

    ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` (first value) count only with ``trust_proxy``: anyone can send them.
    """
    scheme, host = request.scope["scheme"], request.headers.get("host", "") or request.url.netloc
    if trust_proxy:
        scheme = _first(request, "x-forwarded-proto") or scheme
        host = _first(request, "x-forwarded-host") or host
    return f"{scheme}://{host}"


def _first(request: Request, header: str) -> str:
    return request.headers.get(header, "").partition(",")[0].strip()


class EpisodeRoutes:
    """The hot control routes over one service."""

    def __init__(self, service: SwarmService, gate: Gate, *, trust_proxy: bool) -> None:
        self._service = service
        self._gate = gate
        self._trust_proxy = trust_proxy

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        return [
            Route("/swarm/episodes", self.grant, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/finish", self.finish, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/prepare", self.prepare, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/commit", self.commit, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/confirm", self.confirm, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/agents", self.agent_key, methods=["POST"]),
            Route("/swarm/episodes/{episode_id}/abort", self.abort, methods=["POST"]),
        ]

    async def grant(self, request: Request) -> Response:
        """Grant an episode, or say why not now; holds up to ``wait_s``. A client that leaves is not granted one."""
        power = self._gate.power(request, ANY)
        wanted = await body_as(request, GrantRequest)
        self._gate.require_kind(wanted.kind, power)
        self._gate.claim(wanted.client_id, power)
        base_url = self._base_url(request)
        return _json(
            await unless_abandoned(self._service.grant(wanted, base_url=base_url), request.receive)
        )

    async def finish(self, request: Request) -> Response:
        """Finish an episode with its reward; a repeat gets the first answer."""
        power = self._gate.power(request, ANY)
        episode_id = self._may_end(request, power)
        return _json(await self._service.finish(episode_id, await body_as(request, FinishRequest)))

    async def prepare(self, request: Request) -> Response:
        """Promise to take a finish; a repeat gets the same promise."""
        power = self._gate.power(request, ANY)
        episode_id = self._may_end(request, power)
        return _json(await self._service.prepare(episode_id, await body_as(request, FinishRequest)))

    async def commit(self, request: Request) -> Response:
        """Finish a prepared episode; a repeat gets the first answer."""
        power = self._gate.power(request, ANY)
        return _json(await self._service.commit(self._may_end(request, power)))

    async def confirm(self, request: Request) -> Response:
        """Keep a reservation; a repeat gets the same grant."""
        power = self._gate.power(request, ANY)
        episode_id = self._may_end(request, power)
        return _json(self._service.confirm(episode_id, base_url=self._base_url(request)))

    async def agent_key(self, request: Request) -> Response:
        """Give the key of one agent of an episode; a repeat gets the same key."""
        power = self._gate.power(request, ANY)
        episode_id = self._may_end(request, power)
        wanted = await body_as(request, AgentKeyRequest)
        return _json(self._service.agent_key(episode_id, wanted, base_url=self._base_url(request)))

    async def abort(self, request: Request) -> Response:
        """Abort an episode; a repeat gets the first answer."""
        power = self._gate.power(request, ANY)
        episode_id = self._may_end(request, power)
        return _json(await self._service.abort(episode_id, await body_as(request, AbortRequest)))

    def _base_url(self, request: Request) -> str:
        return f"{dialled_url(request, trust_proxy=self._trust_proxy)}/v1"

    def _may_end(self, request: Request, power: Power) -> str:
        episode_id: str = request.path_params["episode_id"]
        if power is not Power.ADMIN:
            known = self._service.remembered(episode_id)
            known = known or self._service.trace(episode_id, calls=False)
            self._gate.require_episode(known, power)
        return episode_id


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
