"""Send ``Call``s over aiohttp: one session, a deadline on every call, retries only where they are safe."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

import aiohttp

from swarm.client.calls import Call, headers_of, read_answer, read_error, unreachable, untrusted
from swarm.client.retry import Backoff, may_repeat, retry_after_s
from swarm.client.settings import ClientSettings
from swarm.protocol.errors import SwarmError

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CONNECTIONS = 2048
IDLE_CONNECTION_S = 4.0
"""Idle connections are closed before a server's usual 5 s, so that a call never meets a connection just being closed."""


class AsyncTransport:
    """The connections of one async client. Bound to the event loop of its first call."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect lazily: nothing is opened before the first call."""
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # aiohttp sets TCP_NODELAY on every connection itself.
            connector = aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_CONNECTION_S
            )
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def send(self, call: Call[T]) -> T:
        """Send ``call`` until it is answered, refused, or its deadline passes.

        Raises:
            ServerUnreachable: no answer within the deadline.
            SwarmError: the class that the server's error names.
        """
        limit = (call.deadline_s or self._settings.timeout_s) + call.extra_s
        backoff = Backoff(limit)
        while True:
            error, delay = await self._try(call, backoff)
            if not isinstance(error, SwarmError):
                return error
            if delay is None:
                raise error
            logger.debug("%s %s: %s; again in %.2f s", call.method, call.path, error.message, delay)
            await asyncio.sleep(delay)

    async def _try(self, call: Call[T], backoff: Backoff) -> tuple[T | SwarmError, float | None]:
        """One try: the answer, or an error with the delay after which to try again (None: do not)."""
        url = self._settings.url
        try:
            status, headers, raw = await self._once(call, backoff.left_s)
        except aiohttp.ClientConnectorError as failure:
            if (refused := untrusted(url, failure)) is not None:
                return refused, None
            error = unreachable(url, _name(failure), waited_s=backoff.elapsed_s)
            return error, backoff.next_delay()
        except TimeoutError:
            return unreachable(
                url, "the server accepted no answer in time", waited_s=backoff.elapsed_s
            ), None
        except (aiohttp.ClientError, OSError) as failure:
            error = unreachable(url, _name(failure), waited_s=backoff.elapsed_s)
            return error, backoff.next_delay() if call.repeatable else None
        if status < 400:
            return read_answer(call, url, raw), None
        error = read_error(url, status, raw)
        again = may_repeat(status, error, repeatable=call.repeatable)
        if not again or headers.get("x-should-retry") == "false":
            return error, None
        return error, backoff.next_delay(retry_after_s(headers))

    async def _once(self, call: Call[T], left_s: float) -> tuple[int, dict[str, str], bytes]:
        headers = headers_of(call, self._settings)
        async with self._open().request(
            call.method,
            self._settings.url + call.path,
            data=call.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=max(left_s, 0.001)),
            allow_redirects=False,
        ) as response:
            raw = await response.read()
            return response.status, {k.lower(): v for k, v in response.headers.items()}, raw

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _name(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}".rstrip(": ")
