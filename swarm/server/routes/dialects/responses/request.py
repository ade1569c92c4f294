"""The body of ``POST /v1/responses``, read into a ``ChatCall``.

Source of names and rules: OpenAI, "Responses" API reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from swarm.protocol.errors import RequestError
from swarm.server.pictures.intake import Intake
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.common.sampling import MAX_TEMPERATURE, read_format
from swarm.server.routes.dialects.responses.items import read_items
from swarm.server.routes.dialects.responses.tools import ToolSet, read_choice, read_tools
from swarm.server.service.calls import ChatCall, Sampling

IGNORED = (
    "model", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "service_tier", "truncation", "include", "store", "background", "stream_options", "max_tool_calls",
)  # fmt: skip
NOT_SAMPLING = frozenset(("input", "instructions", "tools"))
LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponsesBody:
    """One parsed request: the call, how its answer is written, and what of the request a response repeats."""

    call: ChatCall
    stream: bool
    store: bool
    items: list[Any]
    """Input items of this request, without those of earlier responses."""
    previous: str | None
    echo: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the request that the response object repeats."""
    tools: ToolSet = field(default_factory=ToolSet)
    """As the caller declared them."""


def previous_id(body: dict[str, Any]) -> str | None:
    """Return ``previous_response_id``, None when not sent."""
    return Fields(body).text("previous_response_id")


def read_responses_body(
    body: dict[str, Any], history: list[Any], pictures: Intake | None = None
) -> ResponsesBody:
    """Return ``body`` as a call; ``history`` holds the items of the response that it continues, oldest first.

    ``pictures`` takes in those of all items; None: the served model reads text only.

    Raises:
        RequestError: a key that is missing, wrong or not served; the message names it.
    """
    fields = Fields(body)
    fields.ignore(*IGNORED)
    previous = fields.text("previous_response_id")
    items = _items(fields)
    instructions = fields.text("instructions")
    first = [{"role": "system", "content": instructions}] if instructions else []
    messages = [*first, *read_items([*history, *items], pictures=pictures)]
    if not messages:
        raise wrong("input", body.get("input"), "a string or a non-empty list of items")
    tools = read_tools(fields)
    top = fields.integer("top_logprobs", low=0, high=20) or 0
    call = ChatCall(
        messages=messages,
        tools=tools.tools,
        tool_choice=read_choice(fields, tools),
        max_tokens=fields.integer("max_output_tokens", low=1),
        temperature=fields.number("temperature", low=0, high=MAX_TEMPERATURE),
        logprobs=bool(top) or LOGPROBS in fields.items("include"),
        top_logprobs=top,
        sampling=Sampling(top_p=fields.number("top_p", low=0, high=1), grammar=_grammar(fields)),
        template_kwargs=_reasoning(fields) | fields.mapping("chat_template_kwargs"),
        requested={key: value for key, value in body.items() if key not in NOT_SAMPLING},
        parallel_tool_calls=fields.flag("parallel_tool_calls", default=True),
        dialect="responses",
    )
    _refuse(fields)
    stream, store = fields.flag("stream"), fields.flag("store", default=True)
    fields.ignore("swarm", "conversation", "prompt")
    call.unknown = fields.unknown() + tools.left_out
    if pictures is not None:
        call.take_in(pictures)
    return ResponsesBody(call, stream, store, items, previous, _echo(body, store=store), tools)


def _items(fields: Fields) -> list[Any]:
    value = fields.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return fields.items("input")


def _grammar(fields: Fields) -> Any:
    text = Fields(fields.mapping("text"), "text")
    return read_format(text.get("format"), "text.format") if "format" in text else None


def _reasoning(fields: Fields) -> dict[str, Any]:
    """What the template is told of thinking; nothing when the caller said nothing."""
    effort = Fields(fields.mapping("reasoning"), "reasoning").text("effort")
    if effort is None:
        return {}
    return {"reasoning_effort": effort, "enable_thinking": effort not in ("none", "minimal")}


def _refuse(fields: Fields) -> None:
    for key in ("conversation", "prompt"):
        if key in fields:
            raise unsupported(
                key, fields.get(key), "Send the items in 'input', or previous_response_id."
            )
    if fields.flag("background"):
        raise RequestError(
            "background responses are not served.",
            hint="Leave 'background' out: the answer comes on this connection.",
            parameter="background",
        )


def _echo(body: dict[str, Any], *, store: bool) -> dict[str, Any]:
    """Return the fields that a response repeats, with OpenAI's defaults where nothing was sent."""
    return {
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True) is not False,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": {"effort": None, "summary": None} | (body.get("reasoning") or {}),
        "store": store,
        "text": {"format": {"type": "text"}} | (body.get("text") or {}),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [{"strict": None} | tool for tool in body.get("tools") or []],
        "top_logprobs": body.get("top_logprobs") or 0,
        "truncation": body.get("truncation") or "disabled",
        "user": body.get("user"),
    }
