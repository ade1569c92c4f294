"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.server.routes.dialects.common.serving import Serving, both
from swarm.server.routes.dialects.messages.errors import envelope, error_event
from swarm.server.routes.dialects.messages.reply import message_of
from swarm.server.routes.dialects.messages.request import read_messages_body
from swarm.server.routes.dialects.messages.stream import PING, MessageStream


class MessagesRoutes:
    """The dialect over one service. Beta headers are tolerated: they announce fields, and fields are read as they come."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        return [
            *both("/messages", self.create, ["POST"], envelope),
            *both("/messages/count_tokens", self.count, ["POST"], envelope),
        ]

    async def create(self, request: Request) -> Response:
        """Answer one call, whole or as a stream; the client's disconnect aborts the generation."""
        serving = self._serving
        caller = serving.caller(request)
        given, raw = await serving.body(request)
        body = await serving.read(raw, lambda seen: read_messages_body(given, seen))
        serving.prepare(request, caller, body.call, raw, given.get("swarm"))
        if body.stream:
            writer = MessageStream(serving.service.response_id(caller.episode), serving.model)
            return serving.stream(
                caller, body.call, writer.write, failure=error_event, keep_alive=PING
            )
        answer = await serving.answer(request, caller, body.call)
        return serving.json(message_of(answer, serving.model), answer)

    async def count(self, request: Request) -> Response:
        """Count the tokens of a prompt as it would be rendered; nothing is sampled."""
        serving = self._serving
        caller = serving.caller(request)
        given, raw = await serving.body(request)
        body = await serving.read(raw, lambda seen: read_messages_body(given, seen, counting=True))
        serving.prepare(request, caller, body.call, raw, given.get("swarm"))
        return serving.json(
            {"input_tokens": serving.service.count_tokens(caller.episode, body.call)}
        )
