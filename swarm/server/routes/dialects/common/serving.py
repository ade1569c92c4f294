"""What a route of any dialect does: find the caller by its key, read the body, have the call answered, tell what was applied."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.protocol.errors import SwarmError
from swarm.server.pictures.intake import Album, Intake
from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.auth import Gate
from swarm.server.routes.bodies import parse_object, read_body
from swarm.server.routes.dialects.common.errors import error_block, openai_envelope
from swarm.server.routes.dialects.common.headers import mark
from swarm.server.routes.dialects.common.limits import MAX_BYTES, check_shape, check_size
from swarm.server.routes.errors import error_headers, log_own_trouble
from swarm.server.routes.sse import KEEP_ALIVE, EventStream
from swarm.server.service.calls import Answer, ChatCall, ChatDelta
from swarm.server.service.inference import Caller
from swarm.server.service.service import SwarmService

Handler = Callable[[Request], Awaitable[Response]]
Envelope = Callable[[SwarmError], dict[str, Any]]
BodyT = TypeVar("BodyT")
LONG_BYTES = 1 << 18
"""Of a body whose pictures take milliseconds to look at."""
LONGEST_HEADER = 2048
"""Bytes; many HTTP clients refuse headers of 8 kB."""
PREFIXES = ("/v1", "/e/{token}/v1")
"""Every route exists twice: the second is for agents that can set nothing but a URL."""


class JsonResponse(Response):
    """A body that is JSON already. Starlette's own constructor spends more time on the headers than a route on its answer."""

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        """``headers`` by lower-case name, in ASCII."""
        self.status_code, self.body, self.background = 200, body, None
        self.raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = (b"content-length", str(len(body)).encode())
        self.raw_headers += (length, (b"content-type", b"application/json"))


class Serving:
    """The service, as the dialects use it."""

    def __init__(self, service: SwarmService, gate: Gate) -> None:
        self.service = service
        self._gate = gate
        self._album = Album()

    def caller(self, request: Request) -> Caller:
        """Return whose key was presented.

        Raises:
            AuthError: No key, or not one of this server's.
            Forbidden: A role token: it opens no episode.
            EpisodeGone: The episode is over.
        """
        return self.service.caller_of(self._gate.episode_key(request))

    async def body(self, request: Request) -> tuple[dict[str, Any], bytes]:
        """Return the body as an object, and as it came.

        Raises:
            BodyTooLarge: see ``limits``.
            RequestError: it is no JSON object.
        """
        raw = await read_body(request, limit=MAX_BYTES)
        containers = check_size(raw)
        body = parse_object(raw)
        check_shape(body, containers)
        return body, raw

    async def read(self, raw: bytes, read: Callable[[Intake | None], BodyT]) -> BodyT:
        """Have a body read; it is handed what takes in its pictures, or None when the served model reads text only.

        One that is long with pictures is read beside the loop, which serves everybody meanwhile.
        """
        if not self.service.reads_pictures:
            return read(None)
        pictures = Intake(self._album)
        if len(raw) <= LONG_BYTES:
            return read(pictures)
        return await asyncio.to_thread(read, pictures)

    def prepare(
        self,
        request: Request,
        caller: Caller,
        call: ChatCall,
        raw: bytes,
        swarm: Any,
        part: int = 0,
    ) -> None:
        """Say of the call (the ``part``-th of its request) who makes it, and what its headers and its ``swarm`` object tell."""
        call.agent = caller.agent
        mark(call, request.headers, raw, swarm, part)

    async def answer(self, request: Request, caller: Caller, call: ChatCall) -> Answer:
        """Have a call answered whole; a client that leaves ends it."""
        return await unless_abandoned(self.service.answer(caller.episode, call), request.receive)

    def stream(
        self,
        caller: Caller,
        call: ChatCall,
        write: Callable[[ChatDelta], bytes],
        *,
        failure: Callable[[SwarmError], bytes] = error_block,
        keep_alive: bytes = KEEP_ALIVE,
    ) -> EventStream:
        """Have a call answered piece by piece; ``write`` turns each delta into events."""
        blocks = self._blocks(caller, call, write)
        return EventStream(blocks, headers=self.headers, failure=failure, keep_alive=keep_alive)

    async def _blocks(
        self, caller: Caller, call: ChatCall, write: Callable[[ChatDelta], bytes]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.service.answer_stream(caller.episode, call)) as deltas:
            async for delta in deltas:
                block = write(delta)
                if block:
                    yield block

    def json(self, content: dict[str, Any], answer: Answer | None = None) -> Response:
        """Return a JSON response; with an answer its headers tell what was applied."""
        headers = self.headers()
        if answer is not None:
            reply = answer.choices[0]
            headers["x-swarm-policy-version"] = str(reply.policy_version)
            headers["x-swarm-applied"] = _header_of(reply.applied)
            headers["x-swarm-replayed"] = "true" if answer.replayed else "false"
        return JsonResponse(orjson.dumps(content), headers)

    def headers(self) -> dict[str, str]:
        """Where the run stands."""
        step, version = self.service.position
        return {
            "x-swarm-step": str(step),
            "x-swarm-policy-version": "" if version is None else str(version),
        }

    @property
    def model(self) -> str:
        """Name of the served model, as replies carry it."""
        return self.service.model or "swarm"


def _header_of(applied: dict[str, Any]) -> str:
    """Return what was applied as JSON in ASCII, as a header needs it; a long bias is only counted, the trace has all of it."""
    raw = orjson.dumps(applied)
    if len(raw) > LONGEST_HEADER and "logit_bias" in applied:
        biased = f"{len(applied['logit_bias'])} tokens"
        raw = orjson.dumps(applied | {"logit_bias": biased})
    return raw.decode() if raw.isascii() else json.dumps(applied)


def both(
    path: str, handler: Handler, methods: list[str], envelope: Envelope = openai_envelope
) -> list[Route]:
    """Return the route under both prefixes; errors come in the dialect's ``envelope``."""

    def refused(request: Request, error: SwarmError) -> Response:
        log_own_trouble(request, error)
        content = orjson.dumps(envelope(error), default=str)
        return Response(
            content,
            status_code=error.status,
            headers=error_headers(error.status),
            media_type="application/json",
        )

    async def guarded(request: Request) -> Response:
        try:
            response = await handler(request)
        except SwarmError as error:
            return refused(request, error)
        if isinstance(response, EventStream):
            response.refuse = partial(refused, request)
        return response

    return [Route(f"{prefix}{path}", guarded, methods=methods) for prefix in PREFIXES]
