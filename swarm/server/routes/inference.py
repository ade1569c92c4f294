"""``/v1`` and ``/e/<key>/v1``: the OpenAI dialect in front of ``SwarmService.chat`` and ``chat_stream``.

Plain Starlette routes: they run once for every call of every agent, so nothing is validated twice and no framework layer is
added. The key opens one episode only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.protocol.messages import Status
from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.auth import presented_key
from swarm.server.routes.bodies import parse_object, read_body
from swarm.server.routes.chat_reply import ChunkWriter, completion
from swarm.server.routes.chat_request import ChatBody, read_chat_body
from swarm.server.routes.sse import EventStream, data_block
from swarm.server.service.episodes import Episode
from swarm.server.service.service import SwarmService

DONE = b"data: [DONE]\n\n"


class InferenceRoutes:
    """The routes of the OpenAI dialect over one service."""

    def __init__(self, service: SwarmService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        chat, models = self.chat_completions, self.models
        return [
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/e/{token}/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/e/{token}/v1/models", models, methods=["GET"]),
        ]

    async def chat_completions(self, request: Request) -> Response:
        """Answer one chat call, whole or as a stream; the client's disconnect aborts the generation."""
        episode = self._service.episode_for_key(presented_key(request))
        body = read_chat_body(parse_object(await read_body(request)))
        if body.stream:
            return self._stream(episode, body)
        reply = await unless_abandoned(self._service.chat(episode, body.call), request.receive)
        status = self._service.status()
        headers = _headers(status) | {
            "x-swarm-policy-version": str(reply.policy_version),
            "x-swarm-applied": json.dumps(reply.applied),
        }
        content = orjson.dumps(completion(body, reply, _model(status)))
        return Response(content, headers=headers, media_type="application/json")

    def _stream(self, episode: Episode, body: ChatBody) -> EventStream:
        return EventStream(
            self._blocks(episode, body), headers=lambda: _headers(self._service.status())
        )

    async def _blocks(self, episode: Episode, body: ChatBody) -> AsyncGenerator[bytes, None]:
        """Yield the stream's bytes, one block a delta."""
        writer: ChunkWriter | None = None
        async with aclosing(self._service.chat_stream(episode, body.call)) as deltas:
            async for delta in deltas:
                chunks: list[dict[str, Any]] = []
                if writer is None:
                    writer = ChunkWriter(body, _model(self._service.status()))
                    chunks.append(writer.first())
                chunks.extend(writer.piece(delta))
                if delta.final is not None:
                    chunks.extend(writer.last(delta.final))
                block = b"".join(map(data_block, chunks))
                if delta.final is not None:
                    block += DONE
                if block:
                    yield block

    async def models(self, request: Request) -> Response:
        """List the one served model; its id is what replies carry as ``model``."""
        self._service.episode_for_key(presented_key(request))
        model = {
            "id": _model(self._service.status()),
            "object": "model",
            "created": 0,
            "owned_by": "swarm",
        }
        return Response(
            orjson.dumps({"object": "list", "data": [model]}), media_type="application/json"
        )


def _model(status: Status) -> str:
    return status.model or "swarm"


def _headers(status: Status) -> dict[str, str]:
    """Where the run stands; a whole answer adds which version sampled it and what was applied."""
    version = status.policy_version
    return {
        "x-swarm-step": str(status.step),
        "x-swarm-policy-version": str(version.n) if version else "",
    }
