"""Holding the controller lease: taken once, renewed in the background, given back when the client closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from swarm.client.leases import beat_s
from swarm.protocol.clients import ControllerLease
from swarm.protocol.errors import StateError, SwarmError

logger = logging.getLogger(__name__)


def _told(error: SwarmError) -> bool:
    """Log why the lease was not renewed; whether it is lost for good (another client has it)."""
    logger.warning("the controller lease was not renewed: %s", error.message)
    return isinstance(error, StateError)


class SyncControl:
    """For the synchronous client: a daemon thread renews. ``ask(release)`` sends the request."""

    def __init__(self, ask: Callable[[bool], ControllerLease]) -> None:
        """Nothing runs before ``take``."""
        self._ask = ask
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def take(self) -> ControllerLease:
        """Take (or renew) the lease now and keep it until ``release``; ``StateError`` while another client holds it."""
        lease = self._ask(False)
        if self._stop is None or self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._renew,
                args=(self._stop, lease.lease_s),
                name="swarm-controller",
                daemon=True,
            )
            self._thread.start()
        return lease

    def release(self) -> ControllerLease:
        """Give it back. Safe to call twice."""
        self._end()
        return self._ask(True)

    def close(self) -> None:
        """Give it back if it is held, without a word when the server is away."""
        if self._end():
            with contextlib.suppress(SwarmError):
                self._ask(True)

    def _end(self) -> bool:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop.set()
        return stop is not None

    def _renew(self, stop: threading.Event, lease_s: float) -> None:
        while not stop.wait(beat_s(lease_s)):
            try:
                self._ask(False)
            except SwarmError as error:
                if _told(error):
                    return


class AsyncControl:
    """For the asynchronous client: a task renews."""

    def __init__(self, ask: Callable[[bool], Awaitable[ControllerLease]]) -> None:
        """Nothing runs before ``take``."""
        self._ask = ask
        self._task: asyncio.Task[None] | None = None

    async def take(self) -> ControllerLease:
        """Take (or renew) the lease now and keep it until ``release``; ``StateError`` while another client holds it."""
        lease = await self._ask(False)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._renew(lease.lease_s))
        return lease

    async def release(self) -> ControllerLease:
        """Give it back. Safe to call twice."""
        await self._end()
        return await self._ask(True)

    async def close(self) -> None:
        """Give it back if it is held, without a word when the server is away."""
        if await self._end():
            with contextlib.suppress(SwarmError):
                await self._ask(True)

    async def _end(self) -> bool:
        task, self._task = self._task, None
        if task is None:
            return False
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return True

    async def _renew(self, lease_s: float) -> None:
        while True:
            await asyncio.sleep(beat_s(lease_s))
            try:
                await self._ask(False)
            except SwarmError as error:
                if _told(error):
                    return
