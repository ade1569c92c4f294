"""From a call to requests for the engine: checked, rendered, its sampling settled. Nothing is sampled here."""

from __future__ import annotations

from functools import partial
from typing import Any

from swarm.protocol.errors import ContextLengthExceeded, RequestError, UnsupportedParameter
from swarm.server.pictures.parts import digests, text_in
from swarm.server.ports import GenerateRequest
from swarm.server.service.calls import ChatCall
from swarm.server.service.choices import ChoiceText
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.generation import check_open
from swarm.server.service.grammars import grammar_of
from swarm.server.service.jobs import Job
from swarm.server.service.sampling import Applied, apply_sampling
from swarm.server.service.volatile import Volatile
from swarm.server.tracking.episode_tree import PreparedPrompt
from swarm.server.tracking.reasoning import ReasoningSplit
from swarm.server.tracking.toolcalls import ToolParser, call_name, tool_parser
from swarm.triggers import Point, hit

LONG_TEXT = 1 << 16
"""Characters of a conversation above which its size is counted, as far as it can fit, before it is rendered."""
MOST_PICTURE_BYTES = 256 * 1024 * 1024
"""Of the pictures that one episode keeps until it ends, each counted once."""
TAIL_TOKENS = 16
"""Of a prompt, looked at for a mark that opens the thinking."""


class Preparing:
    """Makes the jobs of a call."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._volatile = Volatile(())
        self._parser_name = ""
        self._parser: ToolParser | None = None

    def begin(self, episode: Episode, call: ChatCall, *, stream: bool) -> list[Job]:
        """Return a job for each choice; their requests are pending in the episode from now on.

        Raises:
            EpisodeGone: The episode is over.
            RequestError: Too many calls, messages that cannot be rendered, or a prompt longer than the context.
        """
        core = self._core
        check_open(episode)
        episode.confirm(core.clock.monotonic())
        self._check_calls(episode, call)
        if call.pictures:
            _check_pictures(episode, call)
        try:
            self._check_size(call)
            self._leave_out_volatile(call)
            prepared = self._prepared(episode, call)
            applied = self._applied(episode, call, prepared)
        except ContextLengthExceeded:
            episode.details.context_overflows += 1
            raise
        jobs = [self._job(episode, call, prepared, applied, stream=stream)]
        for index in range(1, call.n):
            again = episode.tree.again(prepared)
            jobs.append(self._job(episode, call, again, applied, index, stream=stream))
        for job in jobs:
            job.request.request_id = f"{episode.episode_id}.{episode.begun_calls}"
            episode.begun_calls += 1
            episode.pending.add(job.request.request_id)
            job.response_id = jobs[0].request.request_id
        hit(Point.CALL_BEGUN)
        return jobs

    def prompt_tokens(self, episode: Episode, call: ChatCall) -> int:
        """Return how much of the context a call's prompt takes; the episode's tree does not remember the question."""
        self._check_size(call)
        self._leave_out_volatile(call)
        return len(self._prompt_ids(episode, call)) + self._picture_tokens(call)

    def _picture_tokens(self, call: ChatCall) -> int:
        """What its pictures take beyond one token each, at most."""
        return len(digests(call.messages)) * (self._core.image_tokens - 1) if call.pictures else 0

    def _prompt_ids(self, episode: Episode, call: ChatCall) -> list[int]:
        tree = episode.tree
        if call.prompt is not None:
            return tree.text_ids(call.prompt, call.agent)
        return tree.prompt_ids(
            call.messages,
            self.tools(call),
            call.template_kwargs,
            call.agent,
            continue_final=call.continue_final,
        )

    def tools(self, call: ChatCall) -> list[dict[str, Any]]:
        """Return the tools that the answer may call."""
        return [] if call.tool_choice == "none" else call.tools

    def _check_calls(self, episode: Episode, call: ChatCall) -> None:
        limit = self._core.config.episode.max_calls
        if episode.begun_calls + call.n > limit:
            raise RequestError(
                f"Episode {episode.episode_id!r} has made {episode.begun_calls} of its {limit} calls.",
                hint="Raise episode.max_calls in the config, or end the episode.",
            )
        if call.prompt_logprobs is not None:
            raise UnsupportedParameter(
                "Log-probabilities of the prompt are not served.",
                hint="Leave prompt_logprobs (and echo together with logprobs) out.",
                parameter="prompt_logprobs",
            )

    def _leave_out_volatile(self, call: ChatCall) -> None:
        patterns = self._core.config.sampling.volatile
        if not patterns or call.raw_request:
            return
        if self._volatile.patterns != patterns:
            self._volatile = Volatile(patterns)
        messages = self._volatile.without(call.messages)
        if messages is not None:
            call.raw_request = {"messages": call.messages}
            call.messages = messages

    def _check_size(self, call: ChatCall) -> None:
        """Refuse what can not fit before it is rendered: encoding megabytes would hold up everybody else's calls."""
        core = self._core
        if core.info is None:
            return
        limit = core.info.max_model_len
        texts = [m["content"] for m in call.messages if isinstance(m.get("content"), str)]
        if call.pictures:
            texts += [text_in(c) for m in call.messages if type(c := m.get("content")) is list]
        texts += [call.prompt] if isinstance(call.prompt, str) else []
        ids = call.prompt if isinstance(call.prompt, list) else []
        if ids and not (min(ids) >= 0 and max(ids) < core.tokenizer.vocab_size):
            raise RequestError(
                f"The prompt has token ids outside of 0 to {core.tokenizer.vocab_size - 1}.",
                hint="Send ids of the served model's own tokenizer.",
                parameter="prompt",
            )
        # Each message has a token at least.
        count = len(call.messages) + len(ids) + self._picture_tokens(call)
        if sum(map(len, texts)) > LONG_TEXT:
            slack = limit + limit // 4
            for text in texts:
                count += core.tokenizer.count_up_to(text, slack - count)
            count = count if count > slack else 0  # else it may fit: the rendering tells
        if count > limit:
            raise _too_long(count, limit, "at least ")

    def _job(
        self,
        episode: Episode,
        call: ChatCall,
        prepared: PreparedPrompt,
        applied: Applied,
        index: int = 0,
        *,
        stream: bool,
    ) -> Job:
        request = self._request(episode, call, prepared, applied, stream=stream)
        text = self._text(call, prepared)
        began = self._core.clock.monotonic()
        job = Job(episode, call, prepared, request, applied, text, began, index)
        job.picture_tokens = self._picture_tokens(call)
        return job

    def _prepared(self, episode: Episode, call: ChatCall) -> PreparedPrompt:
        if call.prompt is not None:
            return episode.tree.prepare_text(call.prompt, call.agent)
        return episode.tree.prepare(
            call.messages,
            self.tools(call),
            call.template_kwargs,
            call.agent,
            continue_final=call.continue_final,
        )

    def _applied(self, episode: Episode, call: ChatCall, prepared: PreparedPrompt) -> Applied:
        core = self._core
        limit = core.info.max_model_len if core.info else 0
        length = len(prepared.prompt_ids) + self._picture_tokens(call)
        room = limit - length
        if room < 1:
            raise _too_long(length, limit)
        grammar = grammar_of(call, self._family)
        applied = apply_sampling(
            call,
            core.config.sampling,
            episode.kind,
            room=room,
            grammar=grammar,
            replays=core.config.engine != "verl",
        )
        if applied.params.grammar and core.tokenizer.grammars is not None:
            core.tokenizer.grammars.check(applied.params.grammar)
        return applied

    def _request(
        self,
        episode: Episode,
        call: ChatCall,
        prepared: PreparedPrompt,
        applied: Applied,
        *,
        stream: bool,
    ) -> GenerateRequest:
        core = self._core
        place = f"{core.config.seed}/{episode.group_id}/{episode.repeat_index}/{prepared.path}"
        return GenerateRequest(
            request_id="",
            prompt_ids=prepared.prompt_ids,
            max_tokens=applied.max_tokens,
            temperature=applied.temperature,
            stop_token_ids=[*core.tokenizer.eos_ids, *self._stop_ids(call)],
            noise_key=place if call.seed is None else f"{place}/{call.seed}",
            affinity=episode.episode_id,
            stop=call.stop,
            params=applied.params,
            top_logprobs=call.top_logprobs if call.logprobs else 0,
            stream=stream,
            images=[call.pictures[digest].data for digest in prepared.pictures],
        )

    def _stop_ids(self, call: ChatCall) -> list[int]:
        """Tokens that end an answer besides the model's own end: what the caller named, and one that would show no picture."""
        image_token = self._core.tokenizer.image_token
        named = call.sampling.stop_token_ids
        return named if image_token is None else [*named, image_token]

    def _text(self, call: ChatCall, prepared: PreparedPrompt) -> ChoiceText:
        family = self._family
        return ChoiceText(
            self._core.tokenizer,
            self._tool_parser(family)([] if call.prompt is not None else self.tools(call)),
            stops=call.stop,
            thinking=self._thinking(call, prepared),
            call_id=partial(call_name, family, prepared.path),
            most_calls=None if call.parallel_tool_calls else 1,
            stop_ids=self._stop_ids(call),
        )

    def _thinking(self, call: ChatCall, prepared: PreparedPrompt) -> ReasoningSplit | None:
        """What tells the answer's thinking apart; None when nobody wants that, or the model does not think."""
        tokenizer = self._core.tokenizer
        marks = tokenizer.think_marks
        if marks is None or call.prompt is not None or self._core.config.model.reasoning == "off":
            return None
        if prepared.begun.strip():  # in the middle of an answer nothing opens any more
            inside = marks.left_open(prepared.begun)
            return ReasoningSplit(marks, inside=True) if inside else None
        tail = tokenizer.decode(prepared.prompt_ids[-TAIL_TOKENS:])
        return ReasoningSplit(marks, inside=marks.opened_by(tail))

    @property
    def _family(self) -> str:
        """Name of the parser in force."""
        return self._core.config.model.tool_parser or self._core.tokenizer.tool_parser

    def _tool_parser(self, name: str) -> ToolParser:
        if self._parser is None or name != self._parser_name:
            self._parser, self._parser_name = tool_parser(name), name
        return self._parser


def _check_pictures(episode: Episode, call: ChatCall) -> None:
    held = episode.tree.pictures | call.pictures
    size = sum(len(picture.data) for picture in held.values())
    if size > MOST_PICTURE_BYTES:
        raise RequestError(
            f"Episode {episode.episode_id!r} has {size} bytes of pictures; at most {MOST_PICTURE_BYTES} are kept.",
            hint="Send smaller pictures, or end the episode.",
        )


def _too_long(tokens: int, limit: int, least: str = "") -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"The prompt has {least}{tokens} tokens; the model takes {limit}, answer included.",
        hint="Shorten the conversation.",
        prompt_tokens=tokens,
        max_model_len=limit,
    )
