"""``POST /v1/completions``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.server.routes.abandon import unless_abandoned
from swarm.server.routes.dialects.common.errors import error_block
from swarm.server.routes.dialects.common.serving import Serving, both
from swarm.server.routes.dialects.completions.reply import CompletionStream, completion
from swarm.server.routes.dialects.completions.request import CompletionsBody, read_completions_body
from swarm.server.routes.sse import EventStream
from swarm.server.service.calls import Answer
from swarm.server.service.inference import Caller


class CompletionsRoutes:
    """The dialect over one service. A request may hold several prompts; each is a call of its own."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        return both("/completions", self.create, ["POST"])

    async def create(self, request: Request) -> Response:
        """Complete each prompt, whole or as a stream (prompt after prompt)."""
        serving = self._serving
        caller = serving.caller(request)
        given, raw = await serving.body(request)
        body = read_completions_body(given)
        for number, call in enumerate(body.calls):
            serving.prepare(request, caller, call, raw, given.get("swarm"), number)
        if body.stream:
            blocks = self._blocks(caller, body)
            return EventStream(blocks, headers=serving.headers, failure=error_block)
        answers = await unless_abandoned(self._together(caller, body), request.receive)
        return serving.json(completion(body, answers, serving.model), answers[0])

    async def _together(self, caller: Caller, body: CompletionsBody) -> list[Answer]:
        """Answer all prompts at once; the first failure cancels the rest."""
        work = [self._serving.service.answer(caller.episode, call) for call in body.calls]
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _blocks(self, caller: Caller, body: CompletionsBody) -> AsyncGenerator[bytes, None]:
        service = self._serving.service
        writer = CompletionStream(body, service.response_id(caller.episode), self._serving.model)
        for number, call in enumerate(body.calls):
            async with aclosing(service.answer_stream(caller.episode, call)) as deltas:
                async for delta in deltas:
                    block = writer.write(number, delta)
                    if block:
                        yield block
