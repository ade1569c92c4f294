"""Server-sent events: an async iterator of ready-made blocks becomes a response that lives and dies with its client.

While the iterator is silent a comment is sent each few seconds, so that proxies and clients keep the connection. The client's
disconnect closes the iterator, which aborts the work behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from swarm.protocol.errors import SwarmError
from swarm.server.routes.abandon import cancel, until_disconnect
from swarm.server.routes.errors import internal_error, shutting_down

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 3.0
KEEP_ALIVE = b": keep-alive\n\n"


def data_block(value: Any) -> bytes:
    """Return ``value`` as one ``data:`` event (JSON, UTF-8, no line breaks inside)."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class EventStream(Response):
    """Response that sends what ``blocks`` yields.

    The answer begins with the first block or, when that takes longer than ``keep_alive_s``, with a comment. An error before
    that is raised (and becomes a proper HTTP status); one after it is sent as a last event with the error envelope.
    ``headers`` is called when the answer begins; ``keep_alive`` and ``failure`` are the dialect's own words.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        blocks: AsyncGenerator[bytes, None],
        *,
        headers: Callable[[], Mapping[str, str]] = dict,
        keep_alive_s: float = KEEP_ALIVE_S,
        keep_alive: bytes = KEEP_ALIVE,
        failure: Callable[[SwarmError], bytes] | None = None,
    ) -> None:
        # As Starlette's own streaming response: no body, hence no content-length.
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._blocks = blocks
        self._late_headers = headers
        self._keep_alive_s, self._keep_alive = keep_alive_s, keep_alive
        self._failure = failure or _error_block
        self.refuse: Callable[[SwarmError], Response] | None = None
        """What an error before the answer began is answered with; None: it is raised."""
        self._started = False
        self._sending = False
        self._busy_since_look = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the iterator ends or the client leaves; the iterator is closed in either case."""
        gone = asyncio.ensure_future(until_disconnect(receive))
        pump = asyncio.ensure_future(self._pump(send))
        try:
            while not pump.done():
                await asyncio.wait(
                    (pump, gone), timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if not pump.done():
                    await self._comment_if_silent(send)
            try:
                await self._end(pump, send)
            except SwarmError as error:  # nothing was sent yet
                if self.refuse is None:
                    raise
                await self.refuse(error)(scope, receive, send)
        except asyncio.CancelledError:
            # The server shuts down: a stream that just ended would look like a whole answer.
            if not self._started:
                raise
            await self._body(send, self._failure(shutting_down()), more=False)
        finally:
            await cancel(pump)
            await cancel(gone)
            await self._blocks.aclose()

    async def _pump(self, send: Send) -> None:
        """Forward the blocks as they come."""
        async for block in self._blocks:
            await self._body(send, block)

    async def _comment_if_silent(self, send: Send) -> None:
        """Send a comment, unless a block went out since the last look or is on its way out."""
        if self._busy_since_look or self._sending:
            self._busy_since_look = False
            return
        await self._body(send, self._keep_alive)
        self._busy_since_look = False

    async def _end(self, pump: asyncio.Future[None], send: Send) -> None:
        """Close the answer, with the error that ended it; raise that error when nothing was sent yet."""
        error = pump.exception()
        if error is None:
            await self._body(send, b"", more=False)
        elif isinstance(error, Exception) and self._started:
            await self._body(send, self._failure(_as_swarm_error(error)), more=False)
        else:
            raise error

    async def _body(self, send: Send, block: bytes, *, more: bool = True) -> None:
        self._sending = self._busy_since_look = True
        if not self._started:
            self._started = True
            self.headers.update(self._late_headers())
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
        await send({"type": "http.response.body", "body": block, "more_body": more})
        self._sending = False


def _error_block(error: SwarmError) -> bytes:
    return data_block(error.envelope())


def _as_swarm_error(error: Exception) -> SwarmError:
    if isinstance(error, SwarmError):
        return error
    logger.error("a stream failed after it had begun", exc_info=error)
    return internal_error(error)
