"""The body of ``POST /v1/chat/completions``, read into a ``ChatCall``.

Source of names and rules: OpenAI, "Create chat completion"; vLLM, "OpenAI-compatible server" for the extra parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swarm.protocol.errors import RequestError
from swarm.server.pictures.intake import Intake
from swarm.server.routes.dialects.chat.messages import read_messages, read_tools
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.common.sampling import (
    MAX_CHOICES,
    MAX_STOPS,
    MAX_TEMPERATURE,
    least,
    read_sampling,
)
from swarm.server.routes.dialects.common.tools import check_choice
from swarm.server.service.calls import ChatCall

MAX_TOP_LOGPROBS = 20
IGNORED = (
    "model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "verbosity", "add_generation_prompt", "skip_special_tokens", "spaces_between_special_tokens", "include_reasoning",
    "use_beam_search", "length_penalty", "best_of", "priority", "request_id", "cache_salt", "documents",
)  # fmt: skip
"""Known, and without meaning for the answer of this server."""
NEEDS_ABSENT: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "prediction": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "web_search_options": (),
    "modalities": (["text"],),
    "echo": (False,),
}
"""Parameters that ask for something that a text model behind this dialect cannot give, with the values that ask for nothing."""
SOMETIMES = frozenset(
    (
        "max_completion_tokens", "stop", "logprobs", "top_logprobs", "chat_template_kwargs", "reasoning_effort", "seed", "n",
        "continue_final_message", "prompt_logprobs", "parallel_tool_calls",
    )
)  # fmt: skip
SELDOM = frozenset((*IGNORED, *NEEDS_ABSENT)) - {"model"}
NOT_SAMPLING = frozenset(("messages", "tools"))


@dataclass(frozen=True, slots=True)
class ChatBody:
    """One parsed request: the call for the service, and how its answer is to be written."""

    call: ChatCall
    stream: bool
    include_usage: bool
    return_token_ids: bool


def read_chat_body(body: dict[str, Any], pictures: Intake | None = None) -> ChatBody:
    """Return ``body`` as a call. ``pictures`` takes in those of its messages; None: the served model reads text only.

    Raises:
        RequestError: a key that is missing, wrong or not served; the message names it.
    """
    fields = Fields(body)
    fields.ignore("model", "swarm")
    if fields.sends(SELDOM):
        _check_seldom(fields)
    messages = read_messages(fields.get("messages"), pictures)
    tools = read_tools(fields.get("tools"))
    call = ChatCall(
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(fields, tools),
        max_tokens=fields.integer("max_tokens", low=1),
        temperature=fields.number("temperature", low=0, high=MAX_TEMPERATURE),
        requested={key: value for key, value in body.items() if key not in NOT_SAMPLING},
        sampling=read_sampling(fields),
    )
    if fields.sends(SOMETIMES):
        _read_sometimes(fields, call)
    options = fields.mapping("stream_options")
    read = ChatBody(
        call=call,
        stream=fields.flag("stream"),
        include_usage=bool(options) and Fields(options, "stream_options").flag("include_usage"),
        return_token_ids=fields.flag("return_token_ids"),
    )
    call.unknown = fields.unknown()
    if pictures is not None:
        call.take_in(pictures)
    call.wants_tokens = call.logprobs or read.return_token_ids
    return read


def _read_sometimes(fields: Fields, call: ChatCall) -> None:
    """Fill in what most calls do not send (``SOMETIMES``)."""
    call.max_tokens = least(call.max_tokens, fields.integer("max_completion_tokens", low=1))
    call.stop = fields.strings("stop", most=MAX_STOPS)
    call.logprobs = fields.flag("logprobs")
    call.top_logprobs = _top_logprobs(fields)
    call.template_kwargs = _template(fields)
    call.seed = fields.integer("seed", low=-(1 << 63))
    call.n = fields.integer("n", low=1, high=MAX_CHOICES) or 1
    call.continue_final = fields.flag("continue_final_message")
    call.prompt_logprobs = fields.integer("prompt_logprobs", low=0, high=MAX_TOP_LOGPROBS)
    call.parallel_tool_calls = fields.flag("parallel_tool_calls", default=True)


def _check_seldom(fields: Fields) -> None:
    fields.ignore(*IGNORED)
    for key, neutral in NEEDS_ABSENT.items():
        value = fields.get(key)
        if value is not None and value not in neutral:
            raise unsupported(key, value, f"Leave {key!r} out.")


def _template(fields: Fields) -> dict[str, Any]:
    """What the template is told; ``reasoning_effort`` is one of its arguments where a model knows it."""
    given = fields.mapping("chat_template_kwargs")
    effort = fields.text("reasoning_effort")
    return given if effort is None else {"reasoning_effort": effort} | given


def _top_logprobs(fields: Fields) -> int:
    value = fields.integer("top_logprobs", low=0, high=MAX_TOP_LOGPROBS) or 0
    if value and not fields.flag("logprobs"):
        raise RequestError(
            "'top_logprobs' needs 'logprobs': true.",
            hint="Send both, or neither.",
            parameter="top_logprobs",
        )
    return value


def _tool_choice(fields: Fields, tools: list[dict[str, Any]]) -> Any:
    """Return ``auto``, ``none``, ``required`` or ``{"name": ...}``."""
    value = fields.get("tool_choice")
    if value is None:
        return "auto"
    if isinstance(value, str):
        if value == "required" and not tools:
            raise RequestError(
                "tool_choice 'required' needs declared tools.",
                hint="Send 'tools', or leave tool_choice out.",
                parameter="tool_choice",
            )
        if value in ("auto", "none", "required"):
            return value
        raise wrong("tool_choice", value, "'auto', 'none', 'required' or a function")
    given = Fields(value, "tool_choice")
    if given.text("type") != "function":
        raise unsupported("tool_choice", value, "Name a declared function.")
    function = Fields(given.get("function"), "tool_choice.function")
    return {"name": check_choice(function.text("name") or "", tools)}
