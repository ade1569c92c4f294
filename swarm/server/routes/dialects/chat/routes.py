"""``POST /v1/chat/completions``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.server.routes.dialects.chat.reply import completion
from swarm.server.routes.dialects.chat.request import read_chat_body
from swarm.server.routes.dialects.chat.stream import ChunkStream
from swarm.server.routes.dialects.common.serving import Serving, both


class ChatRoutes:
    """The dialect over one service."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        return both("/chat/completions", self.create, ["POST"])

    async def create(self, request: Request) -> Response:
        """Answer one call, whole or as a stream; the client's disconnect aborts the generation."""
        serving = self._serving
        caller = serving.caller(request)
        given, raw = await serving.body(request)
        body = await serving.read(raw, lambda seen: read_chat_body(given, seen))
        serving.prepare(request, caller, body.call, raw, given.get("swarm"))
        if body.stream:
            name = serving.service.response_id(caller.episode)
            writer = ChunkStream(body, name, serving.model)
            return serving.stream(caller, body.call, writer.write)
        answer = await serving.answer(request, caller, body.call)
        return serving.json(completion(body, answer, serving.model), answer)
