"""Send ``Call``s over urllib3: a thread-safe pool, a deadline on every call, retries only where they are safe."""

from __future__ import annotations

import logging
import time
from typing import TypeVar

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)

from swarm.client.calls import Call, headers_of, read_answer, read_error, unreachable, untrusted
from swarm.client.retry import Backoff, may_repeat, retry_after_s
from swarm.client.settings import ClientSettings
from swarm.protocol.errors import SwarmError

logger = logging.getLogger(__name__)

T = TypeVar("T")

POOL_SIZE = 128
"""Connections kept for reuse; more may be open at once."""


class SyncTransport:
    """The connections of one synchronous client; may be used from many threads. urllib3 sets TCP_NODELAY."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect lazily: nothing is opened before the first call."""
        self._settings = settings
        self._pool = urllib3.PoolManager(num_pools=2, maxsize=POOL_SIZE, retries=False)

    def send(self, call: Call[T]) -> T:
        """Send ``call`` until it is answered, refused, or its deadline passes.

        Raises:
            ServerUnreachable: no answer within the deadline.
            SwarmError: the class that the server's error names.
        """
        limit = (call.deadline_s or self._settings.timeout_s) + call.extra_s
        backoff = Backoff(limit)
        while True:
            error, delay = self._try(call, backoff)
            if not isinstance(error, SwarmError):
                return error
            if delay is None:
                raise error
            logger.debug("%s %s: %s; again in %.2f s", call.method, call.path, error.message, delay)
            time.sleep(delay)

    def _try(self, call: Call[T], backoff: Backoff) -> tuple[T | SwarmError, float | None]:
        """One try: the answer, or an error with the delay after which to try again (None: do not)."""
        url = self._settings.url
        try:
            response = self._once(call, backoff.left_s)
        except (NewConnectionError, NameResolutionError) as failure:
            error = unreachable(url, type(failure).__name__, waited_s=backoff.elapsed_s)
            return error, backoff.next_delay()
        except (ReadTimeoutError, ConnectTimeoutError):
            return unreachable(
                url, "the server accepted no answer in time", waited_s=backoff.elapsed_s
            ), None
        except (HTTPError, OSError) as failure:
            if (refused := untrusted(url, failure)) is not None:
                return refused, None
            why = f"{type(failure).__name__}: {failure}"
            error = unreachable(url, why, waited_s=backoff.elapsed_s)
            return error, backoff.next_delay() if call.repeatable else None
        status, headers = response.status, response.headers
        if status < 400:
            return read_answer(call, url, response.data), None
        error = read_error(url, status, response.data)
        again = may_repeat(status, error, repeatable=call.repeatable)
        if not again or headers.get("x-should-retry") == "false":
            return error, None
        return error, backoff.next_delay(retry_after_s(headers))

    def _once(self, call: Call[T], left_s: float) -> urllib3.BaseHTTPResponse:
        headers = headers_of(call, self._settings)
        return self._pool.request(
            call.method,
            self._settings.url + call.path,
            body=call.body,
            headers=headers,
            timeout=urllib3.Timeout(total=max(left_s, 0.001)),
            retries=False,
            redirect=False,
        )

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._pool.clear()
