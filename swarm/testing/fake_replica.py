"""A rollout replica's server as the engine ``verl`` sees it through Ray, without Ray: methods have ``remote``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

Piece = dict[str, Any]


class RayActorError(Exception):
    """What a call to a dead actor fails with; known by its name, as in production."""


class FakeServer:
    """Answers every request with ``tokens``. With ``held`` it waits after so many of them until it is stopped or killed."""

    def __init__(self, tokens: list[int], *, held: int | None = None) -> None:
        self.tokens = tokens
        self.asked: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self._held = held
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self.sample = _Method(self._sample)
        self.stream = _Method(self._stream)
        self.stop = _Method(self._stop)
        self.ended = _Method(self._ended)

    @property
    def watched(self) -> bool:
        """Whether somebody waits for its end."""
        return self._loop is not None

    def kill(self) -> None:
        """Let every call fail; from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)

    async def _ended(self) -> str:
        self._loop = asyncio.get_running_loop()
        await self._end.wait()
        raise RayActorError("killed")

    async def _stop(self, name: str) -> None:
        self.stopped.append(name)

    async def _pieces(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        self.asked.append(request)
        tokens = self.tokens[: request["params"]["max_tokens"]]
        for count, token in enumerate(tokens):
            if count == self._held:
                await self._end.wait()
            if self._end.is_set():
                raise RayActorError("killed")
            yield _piece([token], "stop" if count == len(tokens) - 1 else None)

    async def _sample(self, request: dict[str, Any]) -> Piece:
        whole = _piece([], "stop")
        async for piece in self._pieces(request):
            for name in ("ids", "logprobs", "versions"):
                whole[name] += piece[name]
        return whole

    async def _stream(self, request: dict[str, Any]) -> AsyncIterator[asyncio.Future[Piece]]:
        async for piece in self._pieces(request):
            reference: asyncio.Future[Piece] = asyncio.get_running_loop().create_future()
            reference.set_result(piece)
            yield reference


class _Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call

    def options(self, **_options: Any) -> _Method:
        return self


def _piece(ids: list[int], finish: str | None) -> Piece:
    return {
        "ids": list(ids),
        "logprobs": [-1.0] * len(ids),
        "top": [],
        "versions": [3] * len(ids),
        "finish": finish,
        "stop_reason": None,
    }
