"""Call an agent, whatever its colour: coroutines on the loop, plain functions in threads, and read what it returned."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from numbers import Real
from typing import Any, TypeVar, cast

from swarm.protocol.errors import EpisodeGone, RewardError

T = TypeVar("T")

Agent = Callable[[Any, Any], Any]
"""``agent(episode, task) -> reward | (reward, metrics)``; async (gets an AsyncEpisode) or not (gets an Episode)."""


def is_async(agent: Agent) -> bool:
    """Whether calling ``agent`` gives a coroutine (also a callable object with an async ``__call__``)."""
    call = getattr(agent, "__call__", None)  # noqa: B004 - the method itself is inspected, not callability
    return inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(call)


def read_score(returned: Any) -> tuple[float, dict[str, float]]:
    """Reward and metrics from an agent's return value.

    Raises:
        RewardError: it is not a finite number, or not ``(number, {name: number})``.
    """
    none: dict[str, float] = {}
    pair: tuple[Any, Any] = returned if _is_pair(returned) else (returned, none)
    reward, metrics = pair
    if not isinstance(metrics, dict):
        raise RewardError(
            f"The agent's metrics are {type(metrics).__name__}.", hint="Return a dict."
        )
    read = {str(k): _number(v, f"metric {k!r}") for k, v in cast("dict[Any, Any]", metrics).items()}
    return _number(reward, "reward"), read


def _is_pair(returned: Any) -> bool:
    return isinstance(returned, tuple) and len(cast("tuple[Any, ...]", returned)) == 2


def _number(value: Any, what: str) -> float:
    # numpy and torch scalars are not Real, but convert.
    if not isinstance(value, Real) and not hasattr(value, "__float__"):
        raise RewardError(
            f"The agent returned {value!r} as its {what}.",
            hint="Return a finite number, or (number, {name: number}).",
        )
    number = float(cast("Any", value))
    if not math.isfinite(number):
        raise RewardError(f"The agent's {what} is {number!r}.", hint="Return a finite number.")
    return number


def is_gone(error: BaseException) -> bool:
    """Whether an agent failed because its episode had ended: our own class, or any SDK's HTTP 410."""
    return (
        isinstance(error, EpisodeGone) or getattr(error, "status_code", None) == EpisodeGone.status
    )


async def call_agent(agent: Agent, episode: Any, task: Any, timeout_s: float) -> Any:
    """Run ``agent`` to its end.

    Raises:
        TimeoutError: not within ``timeout_s``. A coroutine is cancelled; a thread cannot be, it is left behind as a daemon.
    """
    if is_async(agent):
        async with asyncio.timeout(timeout_s):
            return await cast("Awaitable[Any]", agent(episode, task))
    return await asyncio.wait_for(in_thread(lambda: agent(episode, task)), timeout_s)


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run ``work`` in a daemon thread of its own (an executor's threads would keep the process from ending)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - handed to whoever awaits
            error = caught if isinstance(caught, Exception) else RuntimeError(repr(caught))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="swarm-agent", daemon=True).start()
    return future
