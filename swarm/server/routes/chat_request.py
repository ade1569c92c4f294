"""The body of ``POST /v1/chat/completions``, read strictly: what is asked for is honoured, refused or recorded.

Nothing that would change the answer is ignored in silence: a sampling parameter that this server does not serve is refused
unless it has its neutral value. Keys that this server does not know are kept in ``requested``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm.protocol.errors import RequestError, UnsupportedParameter
from swarm.server.routes.chat_messages import read_messages, read_tools
from swarm.server.service.inference import ChatCall

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "top_p": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "audio": (),
    "prediction": (),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "echo": (False,),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "prompt_logprobs": (0, False),
}
"""Parameters that are not served, with the values that ask for nothing (null always does)."""

_NOT_SAMPLING = frozenset(("messages", "tools"))


@dataclass(frozen=True, slots=True)
class ChatBody:
    """One parsed request: the call for the service, and how its answer is to be written."""

    call: ChatCall
    stream: bool
    include_usage: bool
    return_token_ids: bool


def read_chat_body(body: dict[str, Any]) -> ChatBody:
    """Return ``body`` as a call; ``RequestError`` or ``UnsupportedParameter`` (400) names the key that is wrong."""
    given = {key: value for key, value in body.items() if value is not None}
    for key, neutral in NEUTRAL.items():
        if key in given and not any(_same(given[key], value) for value in neutral):
            raise _unsupported(key, given[key], neutral)
    choice = _tool_choice(given.get("tool_choice"))
    call = ChatCall(
        messages=read_messages(given.get("messages")),
        tools=read_tools(given.get("tools")),
        tool_choice=choice,
        max_tokens=_max_tokens(given),
        temperature=_temperature(given.get("temperature")),
        stop=_stop(given.get("stop")),
        logprobs=_typed(given, "logprobs", bool, default=False),
        top_logprobs=_top_logprobs(given),
        template_kwargs=_typed(given, "chat_template_kwargs", dict, default={}),
        requested={key: value for key, value in body.items() if key not in _NOT_SAMPLING},
        seed=_typed(given, "seed", int, default=None),
    )
    options = _typed(given, "stream_options", dict, default={})
    return ChatBody(
        call=call,
        stream=_typed(given, "stream", bool, default=False),
        include_usage=_typed(options, "include_usage", bool, default=False),
        return_token_ids=_typed(given, "return_token_ids", bool, default=False),
    )


def _same(value: Any, neutral: Any) -> bool:
    """Equality that keeps booleans and numbers apart, but not 1 and 1.0."""
    return isinstance(value, bool) == isinstance(neutral, bool) and value == neutral


def _unsupported(key: str, value: Any, neutral: tuple[Any, ...]) -> UnsupportedParameter:
    allowed = " or ".join(repr(item) for item in neutral)
    hint = f"Leave {key!r} out" + (f" or send {allowed}." if allowed else ".")
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return UnsupportedParameter(
        f"The parameter {key!r} with value {shown} is not served.", hint=hint, parameter=key
    )


def _wrong(key: str, value: Any, wanted: str) -> RequestError:
    return RequestError(
        f"{key!r} must be {wanted}, not {type(value).__name__} {_short(value)}.",
        hint=f"Send {key!r} as {wanted}.",
        parameter=key,
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_WORDS = {bool: "true or false", int: "an integer", dict: "an object"}


def _typed(given: dict[str, Any], key: str, kind: type, *, default: Any) -> Any:
    value = given.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(key, value, _WORDS[kind])
    return value


def _number(key: str, value: Any, wanted: str, accept: Callable[[float], bool]) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not accept(value)
    ):
        raise _wrong(key, value, wanted)
    return float(value)


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    return _number(
        "temperature", value, "a finite number of at least 0", lambda number: number >= 0
    )


def _max_tokens(given: dict[str, Any]) -> int | None:
    """The smaller of the two spellings; None when neither was sent."""
    found: list[int] = []
    for key in ("max_tokens", "max_completion_tokens"):
        value = _typed(given, key, int, default=None)
        if value is None:
            continue
        if value < 1:
            raise _wrong(key, value, "an integer of at least 1")
        found.append(value)
    return min(found, default=None)


def _top_logprobs(given: dict[str, Any]) -> int:
    value = _typed(given, "top_logprobs", int, default=0)
    if not 0 <= value <= MAX_TOP_LOGPROBS:
        raise _wrong("top_logprobs", value, f"an integer from 0 to {MAX_TOP_LOGPROBS}")
    if value and not given.get("logprobs"):
        raise RequestError(
            "'top_logprobs' needs 'logprobs': true.",
            hint="Send both, or neither.",
            parameter="top_logprobs",
        )
    return value


def _stop(value: Any) -> list[str]:
    if value is None:
        return []
    stops = [value] if isinstance(value, str) else value
    wanted = f"a non-empty string or a list of at most {MAX_STOPS} of them"
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(s, str) and s for s in stops)
    ):
        raise _wrong("stop", value, wanted)
    return stops


def _tool_choice(value: Any) -> str:
    if value is None or value == "auto":
        return "auto"
    if value == "none":
        return "none"
    raise _unsupported("tool_choice", value, ("auto", "none"))
