"""Work that nobody waits for any more is cancelled: a client's disconnect ends what it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

ResultT = TypeVar("ResultT")
WATCH_AFTER_S = 0.02
"""Work that takes no longer is not worth a watch; a client that left before is noticed then."""


class ClientLeft(Exception):
    """The client closed its connection before the answer was ready."""


async def until_disconnect(receive: Receive) -> None:
    """Return when the client is gone. The request's body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_abandoned(work: Coroutine[Any, Any, ResultT], receive: Receive) -> ResultT:
    """Return what ``work`` returns; when the client leaves first, cancel it, wait for its end and raise ``ClientLeft``.

    Cancelling this call (the server shuts down) cancels ``work`` as well.
    """
    # The work runs in the caller's own task: a second one would cost more than the whole watch. What is answered at once is
    # not watched at all.
    worker = asyncio.current_task()
    assert worker is not None
    left = False
    watcher: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal left
        await until_disconnect(receive)
        left = True
        worker.cancel()

    def begin() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(watch())

    timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if left and not worker.uncancel():
            raise ClientLeft from None
        raise
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


async def cancel(task: asyncio.Future[Any]) -> None:
    """Cancel ``task`` and wait until it ended; its result or exception is dropped. Done tasks cost nothing."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
