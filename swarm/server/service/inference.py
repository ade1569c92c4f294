"""Answering a call: its choices are sampled, captured, and handed back whole or piece by piece.

Knows no dialect of HTTP: ``ChatCall`` comes in, ``Answer`` (or ``ChatDelta`` pieces) goes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from swarm.protocol.errors import QueueFull
from swarm.server.service.calls import Answer, ChatCall, ChatDelta, ChatReply
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.fairness import FairGate
from swarm.server.service.generation import Generation, Sampled
from swarm.server.service.jobs import Capture, Job
from swarm.server.service.preparing import Preparing
from swarm.server.service.recovery import EngineKeeper
from swarm.server.service.retries import Retries

__all__ = ["Answer", "Caller", "ChatCall", "ChatDelta", "ChatReply", "Inference"]

HELD_LIMIT = 4096
"""Calls that may wait for the engine at once; the next one is answered 429."""
PLACES = 256
"""Requests inside the engine at once: twice the rows that it samples together, so that it never runs dry."""


class Caller(NamedTuple):
    """Who makes a call: an agent in an open episode."""

    episode: Episode
    agent: str
    """Empty = the episode's own key."""


class Inference:
    """Serves calls of episodes. Calls are held while the engine boots or its weights move."""

    def __init__(self, core: Core, keeper: EngineKeeper) -> None:
        self._core = core
        self._preparing = Preparing(core)
        self._generation = Generation(core, keeper)
        self._capture = Capture(core)
        self._retries = Retries()
        self._gate = FairGate(PLACES)

    @property
    def held(self) -> int:
        """Calls that wait for the engine now."""
        return self._generation.held + self._gate.waiting

    async def answer(self, episode: Episode, call: ChatCall) -> Answer:
        """Answer one call; it is in the episode's tree when this returns. An engine that dies meanwhile is not noticed.

        Raises:
            EpisodeGone: The episode ended before the answer was complete.
            RequestError: Too many calls, messages that cannot be rendered, or a prompt longer than the context.
            QueueFull: Too many calls are held.
            EngineFailed: The engine died again and again.
        """
        if call.retry_count:
            known = await self._known(episode, call)
            if known is not None:
                return known
        self._check_queue(call)
        promise, answer = self._retries.begin(episode, call), None
        try:
            jobs = self._preparing.begin(episode, call, stream=False)
            replies = await self._together(jobs) if len(jobs) > 1 else [await self._whole(jobs[0])]
            answer = _answer(jobs, replies)
            return answer
        finally:
            self._retries.end(episode, call, promise, answer)

    async def answer_stream(self, episode: Episode, call: ChatCall) -> AsyncGenerator[ChatDelta]:
        """Answer piece by piece; the last delta of each choice carries its whole reply, committed before it is yielded.

        The pieces of several choices come interleaved. Closing the generator early aborts the sampling; the tokens so far
        are recorded as an aborted call. Raises like ``answer``.
        """
        known = await self._known(episode, call) if call.retry_count else None
        if known is not None:
            for reply in known.choices:
                yield _replay(reply, known.response_id)
            return
        self._check_queue(call)
        promise, answer = self._retries.begin(episode, call), None
        replies: list[ChatReply] = []
        try:
            jobs = self._preparing.begin(episode, call, stream=True)
            merged = self._stream(jobs[0]) if len(jobs) == 1 else self._interleaved(jobs)
            # Closed by hand: a generator that is only dropped would leave the engine sampling.
            async with aclosing(merged) as deltas:
                async for delta in deltas:
                    if delta.final is not None:
                        replies.append(delta.final)
                        if len(replies) == len(jobs):
                            answer = _answer(jobs, sorted(replies, key=lambda r: r.index))
                    yield delta
        finally:
            self._retries.end(episode, call, promise, answer)

    def count_tokens(self, episode: Episode, call: ChatCall) -> int:
        """Return how many tokens the call's prompt has, captured history included; nothing is remembered of the question."""
        return self._preparing.prompt_tokens(episode, call)

    def response_id(self, episode: Episode) -> str:
        """Return the name that the next answer of the episode will have."""
        return f"{episode.episode_id}.{episode.begun_calls}"

    async def _known(self, episode: Episode, call: ChatCall) -> Answer | None:
        """Return the recorded answer that a retry repeats; waits for one that is still being sampled."""
        while (running := self._retries.running(episode, call)) is not None:
            await asyncio.wait([running])
        known = self._retries.earlier(episode, call)
        return None if known is None else msgspec.structs.replace(known, replayed=True)

    def _check_queue(self, call: ChatCall) -> None:
        """Raise ``QueueFull`` when too many calls wait already; nothing of this one is remembered then."""
        if self.held + call.n > HELD_LIMIT:
            state = self._core.lifecycle.state.value
            raise QueueFull(
                f"{self.held} calls wait for the engine ({state}).", hint="Retry later."
            )

    async def _whole(self, job: Job) -> ChatReply:
        sampled = Sampled()
        try:
            await self._enter(job)
            try:
                sampled = await self._generation.whole(
                    job.episode, job.request, lambda late: self._capture.partial(job, late)
                )
            finally:
                self._gate.leave()
            job.text.finish(sampled.ids)
            return self._capture.commit(job, sampled)
        except BaseException:
            self._capture.partial(job, sampled)
            raise
        finally:
            self._capture.over(job)

    async def _enter(self, job: Job) -> None:
        """Take a place inside the engine, when it is this call's turn."""
        if not self._gate.enter():
            await self._gate.wait(job.episode.episode_id)

    async def _together(self, jobs: Sequence[Job]) -> list[ChatReply]:
        """Sample all choices at once; when one fails the others are cancelled, and waited for."""
        tasks = [asyncio.ensure_future(self._whole(job)) for job in jobs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream(self, job: Job) -> AsyncGenerator[ChatDelta]:
        sampled, sent = Sampled(), 0
        try:
            await self._enter(job)
            try:
                growing = self._generation.stream(
                    job.episode,
                    job.request,
                    sampled,
                    lambda late: self._capture.partial(job, late),
                )
                async with aclosing(growing) as growth:
                    async for _ in growth:
                        delta = job.text.feed(sampled.ids)
                        if _says_something(delta, job.call):
                            yield self._placed(delta, job, sampled, sent)
                            sent = len(sampled.ids)
            finally:
                self._gate.leave()
            delta = self._placed(job.text.finish(sampled.ids), job, sampled, sent)
            delta.final = self._capture.commit(job, sampled)
            yield delta
        except BaseException:
            self._capture.partial(job, sampled)
            raise
        finally:
            self._capture.over(job)

    async def _interleaved(self, jobs: Sequence[Job]) -> AsyncGenerator[ChatDelta]:
        """The pieces of all choices in the order in which they come; the first failure ends all of them."""
        queue: asyncio.Queue[ChatDelta | BaseException | None] = asyncio.Queue()

        async def pump(job: Job) -> None:
            try:
                async with aclosing(self._stream(job)) as deltas:
                    async for delta in deltas:
                        queue.put_nowait(delta)
                queue.put_nowait(None)
            except Exception as error:  # noqa: BLE001 - handed to whoever reads the stream
                queue.put_nowait(error)

        tasks = [asyncio.create_task(pump(job)) for job in jobs]
        try:
            running = len(tasks)
            while running:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _placed(self, delta: ChatDelta, job: Job, sampled: Sampled, since: int) -> ChatDelta:
        """Say of a delta whose it is, and which tokens came with it."""
        delta.index, delta.prompt_tokens = job.index, job.prompt_tokens
        delta.response_id, delta.prompt_text = job.response_id, job.prompt_text
        delta.token_ids = sampled.ids[since:]
        delta.logprobs = sampled.logprobs[since:]
        if job.call.logprobs:
            token_bytes = self._core.tokenizer.token_bytes
            delta.token_texts = [token_bytes(i) for i in delta.token_ids]
            delta.top = [[(token_bytes(i), lp) for i, lp in one] for one in sampled.top[since:]]
        return delta


def _says_something(delta: ChatDelta, call: ChatCall) -> bool:
    return bool(delta.text or delta.reasoning or delta.tool_calls or call.wants_tokens)


def _replay(reply: ChatReply, response_id: str) -> ChatDelta:
    return ChatDelta(
        index=reply.index,
        prompt_tokens=reply.prompt_tokens,
        response_id=response_id,
        prompt_text=reply.prompt_text,
        final=reply,
    )


def _answer(jobs: Sequence[Job], replies: list[ChatReply]) -> Answer:
    return Answer(
        choices=replies,
        prompt_tokens=replies[0].prompt_tokens,
        completion_tokens=sum(reply.completion_tokens for reply in replies),
        reasoning_tokens=sum(reply.reasoning_tokens for reply in replies),
        response_id=jobs[0].response_id,
    )
