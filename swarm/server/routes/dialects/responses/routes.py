"""``/v1/responses``: create, read, list the input of, and delete a response. They live as long as their episode."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.server.routes.dialects.common.serving import Serving, both
from swarm.server.routes.dialects.responses.listing import input_page
from swarm.server.routes.dialects.responses.reply import response_of
from swarm.server.routes.dialects.responses.request import (
    ResponsesBody,
    previous_id,
    read_responses_body,
)
from swarm.server.routes.dialects.responses.store import ResponseStore
from swarm.server.routes.dialects.responses.stream import ResponseStream
from swarm.server.routes.sse import EventStream
from swarm.server.service.calls import ChatDelta
from swarm.server.service.inference import Caller


class ResponsesRoutes:
    """The dialect over one service."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._store = ResponseStore()

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        one = "/responses/{response_id}"
        return [
            *both("/responses", self.create, ["POST"]),
            *both(one, self.read, ["GET"]),
            *both(one, self.delete, ["DELETE"]),
            *both(f"{one}/input_items", self.input_items, ["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Answer one call, whole or as a stream; what ``store`` keeps can be continued by ``previous_response_id``."""
        serving = self._serving
        caller = serving.caller(request)
        given, raw = await serving.body(request)
        history = self._store.history(caller.episode, previous_id(given))
        body = await serving.read(raw, lambda seen: read_responses_body(given, history, seen))
        serving.prepare(request, caller, body.call, raw, given.get("swarm"))
        if body.stream:
            return self._stream(caller, body, history)
        answer = await serving.answer(request, caller, body.call)
        response = response_of(body, answer, serving.model)
        self._keep(caller, body, response, history)
        return serving.json(response, answer)

    async def read(self, request: Request) -> Response:
        """Return a stored response."""
        caller = self._serving.caller(request)
        stored = self._store.get(caller.episode, request.path_params["response_id"])
        return self._serving.json(stored.response)

    async def delete(self, request: Request) -> Response:
        """Forget a stored response."""
        caller, name = self._serving.caller(request), request.path_params["response_id"]
        self._store.delete(caller.episode, name)
        return self._serving.json({"id": name, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """List the input items of a stored response, those of the responses before it included."""
        caller = self._serving.caller(request)
        stored = self._store.get(caller.episode, request.path_params["response_id"])
        items = [*stored.before, *stored.inputs]
        name = str(stored.response["id"]).removeprefix("resp_")
        return self._serving.json(input_page(name, items, request.query_params))

    def _stream(self, caller: Caller, body: ResponsesBody, history: list[Any]) -> EventStream:
        name = self._serving.service.response_id(caller.episode)
        writer = ResponseStream(body, name, self._serving.model)

        def write(delta: ChatDelta) -> bytes:
            block = writer.write(delta)
            if delta.final is not None:
                self._keep(caller, body, writer.response, history)
            return block

        return self._serving.stream(caller, body.call, write, failure=writer.failed)

    def _keep(
        self, caller: Caller, body: ResponsesBody, response: dict[str, Any], history: list[Any]
    ) -> None:
        if body.store:
            self._store.keep(caller.episode, response, body.items, history)
