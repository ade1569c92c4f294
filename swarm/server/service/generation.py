"""One request on its way through whichever engine serves: held, sent, sent again after a death, counted while inside.

Knows neither conversations nor answers: ``GenerateRequest`` comes in, ``Sampled`` goes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import cast

import msgspec

from swarm.protocol.errors import EngineFailed, EpisodeGone, SwarmError
from swarm.protocol.states import FinishReason
from swarm.server.ports import Chunk, Engine, GenerateRequest
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.recovery import EngineKeeper

ATTEMPTS = 4
"""How often one request is sent to an engine that keeps dying: once, and three retries."""


class Sampled(msgspec.Struct):
    """What the engine answered so far."""

    ids: list[int] = []
    logprobs: list[float] = []
    top: list[list[tuple[int, float]]] = []
    kept: list[list[int]] = []
    finish: str = FinishReason.ABORT.value
    stop_reason: str | int | None = None
    versions: list[int] = []
    """Policy version of each token, where the engine tells it; else empty."""
    sent_under: int = 0
    """Policy version that was served when the request was sent."""

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        self.ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.top += chunk.top
        self.kept += chunk.kept
        self.versions += chunk.versions
        if chunk.finish is not None:
            self.finish, self.stop_reason = chunk.finish, chunk.stop_reason

    def take(self, other: Sampled) -> None:
        """Become ``other``, which begins with what is here already; the lists are shared from then on."""
        self.ids, self.logprobs, self.top = other.ids, other.logprobs, other.top
        self.kept, self.versions = other.kept, other.versions
        self.finish, self.stop_reason = other.finish, other.stop_reason

    @property
    def policy_version(self) -> int:
        """Version of the first token, the oldest; without tokens the one that the request was sent under."""
        return self.versions[0] if self.versions else self.sent_under

    @property
    def token_versions(self) -> list[int]:
        """Version of each token when there are several; else empty."""
        return self.versions if len(set(self.versions)) > 1 else []


class Generation:
    """Runs requests. They are held while the engine boots or its weights move, and survive its death."""

    def __init__(self, core: Core, keeper: EngineKeeper) -> None:
        self._core = core
        self._keeper = keeper
        self.held = 0
        """Requests that wait for the engine now."""

    async def whole(
        self, episode: Episode, request: GenerateRequest, on_late: Callable[[Sampled], None]
    ) -> Sampled:
        """Sample to the end; an engine that dies meanwhile is not noticed.

        When the caller is cancelled the engine stops sampling, and ``on_late`` gets the tokens that it had sampled.

        Raises:
            EpisodeGone: The episode ended while the request was held.
            EngineFailed: The engine died again and again.
        """
        for attempt in range(ATTEMPTS):
            sampled = Sampled()
            engine = await self._hold(episode, sampled)
            try:
                await self._inside(engine, request, sampled, on_late)
                return sampled
            except EngineFailed as error:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._keeper.recovered(engine, error)
        raise AssertionError  # the loop returns or raises

    async def stream(
        self,
        episode: Episode,
        request: GenerateRequest,
        sampled: Sampled,
        on_late: Callable[[Sampled], None],
    ) -> AsyncGenerator[None]:
        """Sample token by token into ``sampled``; yields after each growth. Closing it early aborts the sampling.

        After a death of the engine only what is new comes out: the same noise key and weights repeat what was sent already;
        in asynchronous mode the weights may be others, and sampling goes on after it. Raises like ``whole``; ``on_late`` then
        gets the tokens that had come out before.
        """
        try:
            for attempt in range(ATTEMPTS):
                engine = await self._hold(episode, sampled)
                fresh, rest = self._beginning(request, sampled)
                out = len(sampled.ids)
                try:
                    async with aclosing(self._chunks(engine, rest)) as chunks:
                        async for chunk in chunks:
                            fresh.add(chunk)
                            if len(fresh.ids) < out:
                                continue
                            if sampled.ids is not fresh.ids:
                                _check_same(sampled.ids, fresh.ids)
                            self._core.traffic.sampled(len(fresh.ids) - out)
                            out = len(fresh.ids)
                            sampled.take(fresh)
                            yield
                    return
                except EngineFailed as error:
                    if attempt == ATTEMPTS - 1:
                        raise
                    await self._keeper.recovered(engine, error)
        except SwarmError:
            if sampled.ids:
                on_late(sampled)
            raise

    def _beginning(
        self, request: GenerateRequest, sampled: Sampled
    ) -> tuple[Sampled, GenerateRequest]:
        """Return what is there already when the request is sent (again), and what to send."""
        asynchronous = self._core.config.asynchronous.enabled
        if not (asynchronous and sampled.ids):
            return Sampled(sent_under=sampled.sent_under), request
        fresh, count = Sampled(sent_under=sampled.sent_under), len(sampled.ids)
        fresh.take(sampled)
        rest = msgspec.structs.replace(
            request,
            prompt_ids=request.prompt_ids + sampled.ids,
            max_tokens=request.max_tokens - count,
            noise_key=f"{request.noise_key}/after-{count}",
        )
        return fresh, rest

    async def _hold(self, episode: Episode, sampled: Sampled) -> Engine:
        """Wait until the engine serves calls; return it."""
        core = self._core
        if core.lifecycle.holds_calls:
            self.held += 1
            try:
                while core.lifecycle.holds_calls and episode.takes_calls:
                    await core.bell.wait()
            finally:
                self.held -= 1
        check_open(episode)
        if core.engine is None:
            raise EngineFailed("There is no engine.", hint=core.failure or "Start it.")
        sampled.sent_under = core.version
        return core.engine

    async def _inside(
        self,
        engine: Engine,
        request: GenerateRequest,
        sampled: Sampled,
        on_late: Callable[[Sampled], None],
    ) -> None:
        """Let the engine fill ``sampled``. The request counts as inside until its tokens are with whoever books them."""

        def late(chunk: Chunk | None) -> None:
            if chunk is not None and chunk.token_ids:
                self._core.traffic.sampled(len(chunk.token_ids))
                sampled.add(chunk)
                on_late(sampled)
            self._leave()

        self._enter()
        try:
            sampled.add(await engine.generate(request, on_late=late))
        except asyncio.CancelledError:
            raise  # ``late`` was or will be called
        except BaseException:
            self._leave()
            raise
        self._core.traffic.sampled(len(sampled.ids))
        self._leave()

    async def _chunks(self, engine: Engine, request: GenerateRequest) -> AsyncGenerator[Chunk]:
        self._enter()
        try:
            # Closed by hand: a generator that is only dropped would leave the engine sampling.
            async with aclosing(cast("AsyncGenerator[Chunk]", engine.stream(request))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (asyncio.CancelledError, GeneratorExit):
            engine.abort(request.request_id)
            raise
        finally:
            self._leave()

    def _enter(self) -> None:
        self._core.in_flight += 1

    def _leave(self) -> None:
        core = self._core
        core.in_flight -= 1
        if core.in_flight == 0 and core.lifecycle.holds_calls:
            core.bell.ring()


def check_open(episode: Episode) -> None:
    """Check that an episode takes calls.

    Raises:
        EpisodeGone: It is over; the text says why.
    """
    if episode.takes_calls:
        return
    why = "its finish was prepared" if episode.prepared else episode.why_over()
    raise EpisodeGone(
        f"Episode {episode.episode_id!r} is over ({episode.state.value}): {why}.",
        hint="Ask for a new episode.",
        episode_id=episode.episode_id,
        policy_version=episode.policy_version,
    )


def _check_same(before: list[int], again: list[int]) -> None:
    """A stream that goes on after the engine's death must repeat what was already sent."""
    if again[: len(before)] != before:
        raise SwarmError(
            "The restarted engine did not repeat the tokens that were already sent.",
            hint="Send the call again.",
        )
