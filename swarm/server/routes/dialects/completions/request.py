"""The body of ``POST /v1/completions``, read into one ``ChatCall`` a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.common.sampling import (
    MAX_CHOICES,
    MAX_STOPS,
    MAX_TEMPERATURE,
    read_sampling,
)
from swarm.server.service.calls import ChatCall

MAX_LOGPROBS = 20
MAX_PROMPTS = 64
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default of this dialect."""
IGNORED = (
    "model",
    "user",
    "metadata",
    "store",
    "skip_special_tokens",
    "add_special_tokens",
    "priority",
    "cache_salt",
)


@dataclass(frozen=True, slots=True)
class CompletionsBody:
    """One parsed request: a call for each prompt, and how the answers are to be written."""

    calls: list[ChatCall]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    logprobs: int | None
    """How many top log-probabilities a token; None = none at all."""
    echo: bool
    n: int
    """Choices of each prompt."""


def read_completions_body(body: dict[str, Any]) -> CompletionsBody:
    """Return ``body`` as calls.

    Raises:
        RequestError: a key that is missing, wrong or not served; the message names it.
    """
    fields = Fields(body)
    fields.ignore(*IGNORED)
    if fields.text("suffix"):
        raise unsupported("suffix", body["suffix"], "The served model does not fill in the middle.")
    prompts = _prompts(fields.get("prompt"))
    n = fields.integer("n", low=1, high=MAX_CHOICES) or 1
    best_of = fields.integer("best_of", low=1) or n
    if best_of != n:
        raise unsupported("best_of", best_of, "Ask for n choices and choose among them.")
    top, echo = fields.integer("logprobs", low=0, high=MAX_LOGPROBS), fields.flag("echo")
    call = ChatCall(
        messages=[],
        max_tokens=fields.integer("max_tokens", low=1) or DEFAULT_MAX_TOKENS,
        temperature=fields.number("temperature", low=0, high=MAX_TEMPERATURE),
        stop=fields.strings("stop", most=MAX_STOPS),
        logprobs=top is not None,
        top_logprobs=top or 0,
        requested={key: value for key, value in body.items() if key != "prompt"},
        seed=fields.integer("seed", low=-(1 << 63)),
        sampling=read_sampling(fields),
        n=n,
        echo=echo,
        prompt_logprobs=top
        if echo
        else fields.integer("prompt_logprobs", low=0, high=MAX_LOGPROBS),
        dialect="completions",
    )
    options = Fields(fields.mapping("stream_options"), "stream_options")
    stream, token_ids = fields.flag("stream"), fields.flag("return_token_ids")
    fields.ignore("swarm", "prompt_logprobs")
    call.unknown = fields.unknown()
    call.wants_tokens = call.logprobs or token_ids
    return CompletionsBody(
        calls=[msgspec.structs.replace(call, prompt=prompt) for prompt in prompts],
        stream=stream,
        include_usage=options.flag("include_usage"),
        return_token_ids=token_ids,
        logprobs=top,
        echo=echo,
        n=n,
    )


def _prompts(value: Any) -> list[str | list[int]]:
    """A text, a list of ids, or a list of either."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise wrong("prompt", value, "a string, a list of token ids, or a non-empty list of these")
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return [value]
    if len(value) > MAX_PROMPTS:
        raise RequestError(
            f"{len(value)} prompts in one request; at most {MAX_PROMPTS}.",
            hint="Send several requests.",
            parameter="prompt",
        )
    return [prompt for item in value for prompt in _one(item)]


def _one(item: Any) -> list[str | list[int]]:
    if not isinstance(item, str | list) or (
        isinstance(item, list) and item and isinstance(item[0], list)
    ):
        raise wrong("prompt", item, "a string or a list of token ids")
    return _prompts(item)
