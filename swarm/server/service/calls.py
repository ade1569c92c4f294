"""A chat call and its answer, free of any dialect and of any engine."""

from __future__ import annotations

from typing import Any

import msgspec

from swarm.server.pictures.intake import Intake, Picture


class Grammar(msgspec.Struct):
    """A constraint on the text of an answer, as the grammar library takes it."""

    kind: str
    """``json_object``, ``json_schema``, ``regex``, ``lark`` or ``choice``."""
    body: Any = None
    """The schema (dict), the pattern or grammar (str), the choices (list[str]); None for json_object."""


class Sampling(msgspec.Struct):
    """How the caller wants to be sampled; None (or empty) = not sent. ``ChatCall`` holds what existed before it."""

    top_p: float | None = None
    top_k: int | None = None
    """At least 1; 0 and -1 mean all and are read as None."""
    min_p: float | None = None
    stop_token_ids: list[int] = []
    min_tokens: int = 0
    ignore_eos: bool = False
    logit_bias: dict[int, float] = {}
    """Token id -> added to its logit, -100..100."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    grammar: Grammar | None = None
    """What the answer's text must be."""


class ChatCall(msgspec.Struct):
    """What an agent asked for, free of any dialect. None = not sent."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    tool_choice: Any = None
    """None or ``"auto"``: answers may be tool calls when tools are declared; ``"none"``: never."""
    max_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] = []
    logprobs: bool = False
    top_logprobs: int = 0
    template_kwargs: dict[str, Any] = {}
    requested: dict[str, Any] = {}
    """Sampling values as sent, for the record."""
    seed: int | None = None
    """Mixed into the noise key when sent."""
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    n: int = 1
    """Choices; each is sampled by itself and is a branch that can train."""
    prompt: str | list[int] | None = None
    """A bare prompt (the completions dialect) instead of ``messages``: text, or token ids."""
    continue_final: bool = False
    """The last message is an assistant's, and the answer continues it."""
    echo: bool = False
    prompt_logprobs: int | None = None
    parallel_tool_calls: bool = True
    dialect: str = "chat"
    """``chat``, ``completions``, ``responses`` or ``messages``."""
    wants_tokens: bool = False
    """Pieces of a stream matter for their tokens too (ids or log-probabilities were asked for)."""
    raw_request: dict[str, Any] = {}
    """What was asked, when what is rendered differs from it; set by the service."""
    unknown: list[str] = []
    """Parameters that this server does not know: tolerated, and listed in the trace."""
    tag: str = ""
    """What the client calls this call (header ``x-swarm-tag`` or body ``swarm.tag``): ``title``, ``summary``..."""
    exclude: bool = False
    """The client asked that this call never trains (header ``x-swarm-train: false`` or body ``swarm.train: false``)."""
    agent: str = ""
    """Whose key made the call; empty = the episode's own."""
    retry_key: str = ""
    """Digest of the request; with ``retry_count`` > 0 an equal earlier call of the episode is replayed, never sampled again."""
    retry_count: int = 0
    """``x-stainless-retry-count``; 0 = a first attempt."""
    pictures: dict[str, Picture] = {}
    """By digest, those that parts of ``messages`` name (``swarm.server.pictures.parts``)."""

    def take_in(self, pictures: Intake) -> None:
        """Hold the pictures of the request."""
        self.pictures = pictures.found
        self.unknown = self.unknown + pictures.unknown


class ChatReply(msgspec.Struct):
    """One whole answer; ``n`` > 1 has several, see ``Answer``."""

    message: dict[str, Any]
    """``{"role": "assistant", "content": str | None}`` and ``tool_calls`` when there are any."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt_ids: list[int]
    token_ids: list[int]
    """Sampled ids, the end token included."""
    logprobs: list[float]
    token_texts: list[bytes]
    """One a token; empty unless ``logprobs`` was asked for."""
    top: list[list[tuple[bytes, float]]]
    """Per token, (bytes, logprob) of the most likely ones; empty unless asked for."""
    applied: dict[str, Any]
    """``temperature`` and ``max_tokens`` as they took effect."""
    call_index: int
    policy_version: int
    index: int = 0
    """Which of the ``n`` choices."""
    stop_reason: str | int | None = None
    """The stop string, or the stop token id, that ended it; None when it was the model's own end, length or abort."""
    reasoning: str | None = None
    """Thinking, apart from ``message["content"]``; the message carries it as ``reasoning_content`` too. None = none."""
    reasoning_tokens: int = 0
    """Of ``completion_tokens``, those of the thinking, its marks included."""
    prompt_text: str = ""
    """The prompt as text, when ``echo`` asked for it."""


class Answer(msgspec.Struct):
    """All choices of one call, by index."""

    choices: list[ChatReply]
    prompt_tokens: int
    completion_tokens: int
    """Summed over the choices."""
    reasoning_tokens: int = 0
    """Of those, the thinking's."""
    response_id: str = ""
    """Stable name of this answer within the server: ``<episode>.<call>``; the same for a replay."""
    replayed: bool = False


class ChatDelta(msgspec.Struct):
    """A piece of a streamed answer; the last one of each choice carries ``final``.

    A tool call comes when it is complete and certain, in one piece: what was sent is never taken back.
    """

    text: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    index: int = 0
    """Which of the ``n`` choices."""
    prompt_tokens: int = 0
    """Of the call; the same on every piece."""
    response_id: str = ""
    """As ``Answer.response_id``; the same on every piece."""
    prompt_text: str = ""
    """As ``ChatReply.prompt_text``; the same on every piece."""
    reasoning: str = ""
    token_ids: list[int] = []
    """Sampled since the last piece of this choice."""
    logprobs: list[float] = []
    top: list[list[tuple[bytes, float]]] = []
    token_texts: list[bytes] = []
    final: ChatReply | None = None
