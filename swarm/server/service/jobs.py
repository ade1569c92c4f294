"""One choice of one call on its way through the engine, and what becomes of it: a record in the episode's tree and a reply.

Every token that was sampled is recorded here or counted in the step's account, whoever left and whatever died meanwhile.
"""

from __future__ import annotations

from typing import Any

import msgspec

from swarm.protocol.states import EpisodeKind, FateReason, FinishReason
from swarm.server.ports import GenerateRequest
from swarm.server.service.calls import ChatCall, ChatReply
from swarm.server.service.choices import ChoiceText
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.generation import Sampled, check_open
from swarm.server.service.sampling import Applied
from swarm.server.service.traffic import CallOutcome
from swarm.server.tracking.episode_tree import PreparedPrompt
from swarm.triggers import Point, hit


class Job(msgspec.Struct, eq=False):
    """One choice on its way."""

    episode: Episode
    call: ChatCall
    prepared: PreparedPrompt
    request: GenerateRequest
    applied: Applied
    text: ChoiceText
    began: float
    """Monotonic seconds of its arrival."""
    index: int = 0
    """Which of the call's choices."""
    response_id: str = ""
    """Name of the answer that this is a choice of: the request id of its first choice."""
    committed: bool = False
    picture_tokens: int = 0
    """What the pictures of the prompt take in the model's context at most, beyond the one token of each in ``prompt_ids``."""
    booked: bool = False
    """What was sampled is in the tree or in the step's account; it must not get there twice."""

    @property
    def prompt_tokens(self) -> int:
        """How much of the model's context the prompt takes, at most where it has pictures."""
        return len(self.request.prompt_ids) + self.picture_tokens

    @property
    def prompt_text(self) -> str:
        """The text of a bare prompt, when it shall be repeated before the answer."""
        return self.prepared.messages[0]["content"] if self.call.echo else ""


class Capture:
    """Writes what was sampled into the tree of its episode."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def commit(self, job: Job, sampled: Sampled) -> ChatReply:
        """Record a whole answer and return it; ``job.text`` must be finished.

        Raises:
            EpisodeGone: The episode ended first; the tokens are counted, and in no trace.
        """
        hit(Point.CALL_SAMPLED)
        self._count_if_over(job, sampled)
        check_open(job.episode)
        message, finish = job.text.message(), job.text.finish_reason(sampled.finish)
        index = self._record(job, sampled, message, finish)
        job.committed = True
        hit(Point.CALL_COMMITTED)
        return self._reply(job, sampled, message, finish, index)

    def partial(self, job: Job, sampled: Sampled) -> None:
        """Record what was sampled before the caller left: such tokens are accounted for and never trained."""
        if job.booked or not sampled.ids:
            return
        if not job.episode.takes_calls:
            self._count_if_over(job, sampled)
            return
        text = self._core.tokenizer.answer_text(sampled.ids)
        message = {"role": "assistant", "content": text}
        self._record(job, sampled, message, FinishReason.ABORT.value)

    def over(self, job: Job) -> None:
        """Note that a choice is answered, or never will be."""
        job.episode.pending.discard(job.request.request_id)
        job.episode.last_active = now = self._core.clock.monotonic()
        outcome = CallOutcome.ANSWERED if job.committed else CallOutcome.UNANSWERED
        self._core.traffic.call(outcome, now - job.began)

    def _record(self, job: Job, sampled: Sampled, message: dict[str, Any], finish: str) -> int:
        job.booked = True
        call, applied = job.call, job.applied
        kept = sampled.kept
        fits = all(len(ids) <= self._core.config.sampling.train.max_kept for ids in kept)
        more: dict[str, Any] = {
            "tag": call.tag,
            "excluded": call.exclude,
            "dialect": call.dialect,
            "applied": applied.shown,
            "kept": kept if fits else [],
            "replayable": applied.replayable and fits,
            "unknown": call.unknown,
            "raw_request": call.raw_request,
            "choice": job.index,
        }
        image_token = self._core.tokenizer.image_token
        if image_token is not None:
            job.episode.tree.pictures |= call.pictures
            if image_token in sampled.ids:
                end = sampled.ids.index(image_token)
                more["token_mask"] = [i < end for i in range(len(sampled.ids))]
        record = job.episode.tree.commit(
            job.prepared,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            reply=message,
            finish_reason=finish,
            policy_version=sampled.policy_version,
            token_versions=sampled.token_versions,
            requested=call.requested,
            temperature=applied.temperature,
            max_tokens=applied.max_tokens,
            more=more,
        )
        return record.index

    def _reply(
        self, job: Job, sampled: Sampled, message: dict[str, Any], finish: str, index: int
    ) -> ChatReply:
        token_bytes, call = self._core.tokenizer.token_bytes, job.call
        return ChatReply(
            message=message,
            finish_reason=finish,
            prompt_tokens=job.prompt_tokens,
            completion_tokens=len(sampled.ids),
            prompt_ids=job.request.prompt_ids,
            token_ids=sampled.ids,
            logprobs=sampled.logprobs,
            token_texts=[token_bytes(i) for i in sampled.ids] if call.logprobs else [],
            top=[[(token_bytes(i), lp) for i, lp in one] for one in sampled.top],
            applied=job.applied.shown,
            call_index=index,
            policy_version=sampled.policy_version,
            index=job.index,
            stop_reason=sampled.stop_reason or job.text.stopped_by(sampled.ids),
            reasoning=job.text.reasoning,
            reasoning_tokens=job.text.reasoning_tokens(sampled.ids),
            prompt_text=job.prompt_text,
        )

    def _count_if_over(self, job: Job, sampled: Sampled) -> None:
        """The episode ended first, and was booked without this call: its tokens are in no trace, but in the step's account."""
        episode = job.episode
        if not episode.takes_calls and not job.booked:
            job.booked = True
            train = episode.kind is EpisodeKind.TRAIN
            reason = FateReason.ABORTED_CALL if train else FateReason.EVAL
            self._core.ledger.add_orphans(len(sampled.ids), reason, job.call.agent)
