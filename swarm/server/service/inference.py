"""One chat call: render, hold, sample, parse, commit to the episode's tree, answer.

Knows no dialect of HTTP: ``ChatCall`` comes in, ``ChatReply`` (or ``ChatDelta`` pieces) goes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from swarm.protocol.errors import (
    ContextLengthExceeded,
    EngineFailed,
    EpisodeGone,
    QueueFull,
    RequestError,
    SwarmError,
)
from swarm.protocol.states import EpisodeKind, FateReason, FinishReason
from swarm.server.ports import Chunk, Engine, GenerateRequest
from swarm.server.service.calls import ChatCall, ChatDelta, ChatReply
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.pieces import Pieces, cut_at_stop
from swarm.server.service.recovery import EngineKeeper
from swarm.server.tracking.episode_tree import PreparedPrompt
from swarm.server.tracking.toolcalls import ToolParser, parse_reply, tool_parser

__all__ = ["ChatCall", "ChatDelta", "ChatReply", "Inference"]


HELD_LIMIT = 4096
"""Calls that may wait for the engine at once; the next one is answered 429."""
LONG_TEXT = 1 << 16
"""Characters of a conversation above which its size is estimated before it is encoded."""
ATTEMPTS = 4
"""How often one call is sent to an engine that keeps dying: once, and three retries."""


@dataclass(slots=True, eq=False)
class _Job:
    """One call on its way through the engine."""

    episode: Episode
    call: ChatCall
    prepared: PreparedPrompt
    request: GenerateRequest
    version: int = 0
    committed: bool = False


@dataclass(slots=True)
class _Sampled:
    """What the engine answered so far."""

    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    top: list[list[tuple[int, float]]] = field(default_factory=list[list[tuple[int, float]]])
    finish: str = FinishReason.ABORT.value

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        self.ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.top += chunk.top
        if chunk.finish is not None:
            self.finish = chunk.finish


class Inference:
    """Serves chat calls of episodes. Calls are held while the engine boots or its weights move."""

    def __init__(self, core: Core, keeper: EngineKeeper) -> None:
        self._core = core
        self._keeper = keeper
        self._parser_name = ""
        self._parser: ToolParser | None = None
        self.held = 0
        """Calls that wait for the engine now."""

    async def chat(self, episode: Episode, call: ChatCall) -> ChatReply:
        """Answer one call; it is in the episode's tree when this returns. An engine that dies meanwhile is not noticed.

        Raises:
            EpisodeGone: The episode ended before the answer was complete.
            RequestError: Too many calls, messages that cannot be rendered, or a prompt longer than the context.
            QueueFull: Too many calls are held.
            EngineFailed: The engine died again and again.
        """
        job = self._begin(episode, call, stream=False)
        try:
            sampled = _Sampled()
            sampled.add(await self._attempt(job))
            return self._commit(job, sampled)
        finally:
            self._over(job)

    async def chat_stream(self, episode: Episode, call: ChatCall) -> AsyncGenerator[ChatDelta]:
        """Answer piece by piece; the last delta carries the whole reply, committed before it is yielded.

        Closing the generator early aborts the sampling; the tokens so far are recorded as an aborted call. With declared
        tools the text comes in one piece, since only the whole answer tells text from a call. Raises like ``chat``.
        """
        job = self._begin(episode, call, stream=True)
        sampled = _Sampled()
        pieces = Pieces(self._core.tokenizer, call.stop, whole=bool(self._tools(call)))
        try:
            # Closed by hand: a generator that is only dropped would leave the engine sampling.
            async with aclosing(self._pieces(job, sampled, pieces)) as texts:
                async for text in texts:
                    yield ChatDelta(text=text)
            reply = self._commit(job, sampled)
            yield ChatDelta(
                text=pieces.rest(reply.message["content"] or ""),
                tool_calls=reply.message.get("tool_calls"),
                final=reply,
            )
        except (GeneratorExit, asyncio.CancelledError):
            self._commit_partial(job, sampled)
            raise
        finally:
            self._over(job)

    # -- the call's frame -----------------------------------------------------------------------------------

    def _begin(self, episode: Episode, call: ChatCall, *, stream: bool) -> _Job:
        core = self._core
        self._check_open(episode)
        if episode.begun_calls >= core.config.episode.max_calls:
            raise RequestError(
                f"Episode {episode.episode_id!r} has made its {episode.begun_calls} calls.",
                hint="Raise episode.max_calls in the config, or end the episode.",
            )
        self._check_size(call)
        prepared = episode.tree.prepare(call.messages, self._tools(call), call.template_kwargs)
        request = self._request(episode, call, prepared, stream=stream)
        episode.begun_calls += 1
        episode.pending.add(request.request_id)
        return _Job(episode, call, prepared, request)

    def _check_size(self, call: ChatCall) -> None:
        """Refuse text that can not fit before it is encoded: encoding megabytes would hold up everybody else's calls."""
        texts = [m["content"] for m in call.messages if isinstance(m.get("content"), str)]
        if sum(map(len, texts)) <= LONG_TEXT or self._core.info is None:
            return
        limit = self._core.info.max_model_len
        fewest = sum(self._core.tokenizer.fewest_tokens(text) for text in texts)
        if fewest > limit:
            raise ContextLengthExceeded(
                f"The messages have at least {fewest} tokens; the model takes {limit}, answer included.",
                hint="Shorten the conversation.",
                max_model_len=limit,
            )

    def _over(self, job: _Job) -> None:
        job.episode.pending.discard(job.request.request_id)
        job.episode.last_active = self._core.clock.monotonic()

    def _request(
        self, episode: Episode, call: ChatCall, prepared: PreparedPrompt, *, stream: bool
    ) -> GenerateRequest:
        core = self._core
        sampling = core.config.sampling
        limit = core.info.max_model_len if core.info else 0
        room = limit - len(prepared.prompt_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"The prompt has {len(prepared.prompt_ids)} tokens; the model takes {limit}, answer included.",
                hint="Shorten the conversation.",
                prompt_tokens=len(prepared.prompt_ids),
                max_model_len=limit,
            )
        asked = call.max_tokens or sampling.max_response_tokens
        temperature = sampling.default_temperature if call.temperature is None else call.temperature
        place = f"{core.config.seed}/{episode.group_id}/{episode.repeat_index}/{prepared.path}"
        return GenerateRequest(
            request_id=f"{episode.episode_id}.{episode.begun_calls}",
            prompt_ids=prepared.prompt_ids,
            max_tokens=min(asked, sampling.max_response_tokens, room),
            temperature=temperature,
            stop_token_ids=core.tokenizer.eos_ids,
            noise_key=place if call.seed is None else f"{place}/{call.seed}",
            affinity=episode.episode_id,
            stop=call.stop,
            top_logprobs=call.top_logprobs if call.logprobs else 0,
            stream=stream,
        )

    # -- the engine -----------------------------------------------------------------------------------------

    async def _hold(self, job: _Job) -> Engine:
        """Wait until the engine serves calls; return it."""
        core = self._core
        if core.lifecycle.holds_calls:
            if self.held >= HELD_LIMIT:
                raise QueueFull(
                    f"{self.held} calls wait for the engine ({core.lifecycle.state.value}).",
                    hint="Retry later.",
                )
            self.held += 1
            try:
                while core.lifecycle.holds_calls and job.episode.is_open:
                    await core.bell.wait()
            finally:
                self.held -= 1
        self._check_open(job.episode)
        if core.engine is None:
            raise EngineFailed("There is no engine.", hint=core.failure or "Start it.")
        job.version = core.version
        return core.engine

    async def _attempt(self, job: _Job) -> Chunk:
        for attempt in range(ATTEMPTS):
            engine = await self._hold(job)
            try:
                with self._inside(engine, job):
                    return await engine.generate(job.request)
            except EngineFailed as error:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._keeper.recovered(engine, error)
        raise AssertionError  # the loop returns or raises

    async def _pieces(self, job: _Job, sampled: _Sampled, pieces: Pieces) -> AsyncGenerator[str]:
        """Stream from the engine; after its death the same noise key gives the same tokens, so only new text comes out."""
        for attempt in range(ATTEMPTS):
            engine = await self._hold(job)
            fresh = _Sampled()
            try:
                with self._inside(engine, job):
                    async with aclosing(
                        cast("AsyncGenerator[Chunk]", engine.stream(job.request))
                    ) as chunks:
                        async for chunk in chunks:
                            fresh.add(chunk)
                            if len(fresh.ids) < len(sampled.ids):
                                continue
                            _check_same(sampled.ids, fresh.ids)
                            sampled.ids, sampled.logprobs = fresh.ids, fresh.logprobs
                            sampled.top, sampled.finish = fresh.top, fresh.finish
                            text = pieces.feed(sampled.ids)
                            if text:
                                yield text
                return
            except EngineFailed as error:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._keeper.recovered(engine, error)

    @contextmanager
    def _inside(self, engine: Engine, job: _Job) -> Iterator[None]:
        """Count a call as inside the engine; leaving early aborts it there."""
        core = self._core
        core.in_flight += 1
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            engine.abort(job.request.request_id)
            raise
        finally:
            core.in_flight -= 1
            if core.in_flight == 0 and core.lifecycle.holds_calls:
                core.bell.ring()

    # -- the answer -----------------------------------------------------------------------------------------

    def _commit(self, job: _Job, sampled: _Sampled) -> ChatReply:
        self._count_if_over(job, sampled)
        self._check_open(job.episode)
        call, request, tokenizer = job.call, job.request, self._core.tokenizer
        text = cut_at_stop(tokenizer.answer_text(sampled.ids), call.stop)
        call_id = f"call-{job.prepared.path}"  # by place: templates may print it
        parsed = parse_reply(self._tool_parser(), text, self._tools(call), call_id=call_id)
        message = parsed.message()
        finish = FinishReason.TOOL_CALLS.value if parsed.tool_calls else sampled.finish
        applied = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        record = job.episode.tree.commit(
            job.prepared,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            reply=message,
            finish_reason=finish,
            policy_version=job.version,
            requested=call.requested,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
        )
        job.committed = True
        return ChatReply(
            message=message,
            finish_reason=finish,
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=len(sampled.ids),
            prompt_ids=request.prompt_ids,
            token_ids=sampled.ids,
            logprobs=sampled.logprobs,
            token_texts=[tokenizer.token_bytes(i) for i in sampled.ids] if call.logprobs else [],
            top=[[(tokenizer.token_bytes(i), lp) for i, lp in one] for one in sampled.top],
            applied=applied,
            call_index=record.index,
            policy_version=job.version,
        )

    def _commit_partial(self, job: _Job, sampled: _Sampled) -> None:
        """Record what was sampled before the caller left; such tokens are accounted for and never trained."""
        if job.committed or not sampled.ids:
            return
        if not job.episode.is_open:
            self._count_if_over(job, sampled)
            return
        job.episode.tree.commit(
            job.prepared,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            reply={"role": "assistant", "content": self._core.tokenizer.answer_text(sampled.ids)},
            finish_reason=FinishReason.ABORT.value,
            policy_version=job.version,
            temperature=job.request.temperature,
            max_tokens=job.request.max_tokens,
            requested=job.call.requested,
        )

    def _count_if_over(self, job: _Job, sampled: _Sampled) -> None:
        """The episode ended first, and was booked without this call: its tokens are in no trace, but in the step's account."""
        episode = job.episode
        if not episode.is_open:
            train = episode.kind is EpisodeKind.TRAIN
            reason = FateReason.ABORTED_CALL if train else FateReason.EVAL
            self._core.ledger.add_orphans(len(sampled.ids), reason)

    def _check_open(self, episode: Episode) -> None:
        if episode.is_open:
            return
        why = episode.missed or episode.reason or episode.state.value
        raise EpisodeGone(
            f"Episode {episode.episode_id!r} is over ({episode.state.value}): {why}.",
            hint="Ask for a new episode.",
            episode_id=episode.episode_id,
            policy_version=episode.policy_version,
        )

    def _tools(self, call: ChatCall) -> list[dict[str, Any]]:
        return [] if call.tool_choice == "none" else call.tools

    def _tool_parser(self) -> ToolParser:
        name = self._core.config.model.tool_parser or self._core.tokenizer.tool_parser
        if self._parser is None or name != self._parser_name:
            self._parser, self._parser_name = tool_parser(name), name
        return self._parser


def _check_same(before: list[int], again: list[int]) -> None:
    """A stream that goes on after the engine's death must repeat what was already sent."""
    if again[: len(before)] != before:
        raise SwarmError(
            "The restarted engine did not repeat the tokens that were already sent.",
            hint="Send the call again.",
        )
