"""The body of ``POST /v1/messages`` and of ``count_tokens``, read into a ``ChatCall``.

Source of names and rules: Anthropic's Messages API reference (version 2023-06-01 and the fields added since).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swarm.server.pictures.intake import Intake
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.common.tools import check_choice, check_names, function_tool
from swarm.server.routes.dialects.messages.blocks import read_system, read_turn
from swarm.server.service.calls import ChatCall, Sampling

MAX_STOPS = 64
IGNORED = (
    "model",
    "metadata",
    "service_tier",
    "container",
    "cache_control",
    "inference_geo",
    "speed",
)
"""Known, and without meaning for a model that this server serves."""
NOT_SAMPLING = frozenset(("messages", "system", "tools"))


@dataclass(frozen=True, slots=True)
class MessagesBody:
    """One parsed request: the call for the service, and how its answer is to be written."""

    call: ChatCall
    stream: bool


def read_messages_body(
    body: dict[str, Any], pictures: Intake | None = None, *, counting: bool = False
) -> MessagesBody:
    """Return ``body`` as a call; ``counting`` is for ``count_tokens``, which needs no ``max_tokens``.

    ``pictures`` takes in those of its blocks; None: the served model reads text only.

    Raises:
        RequestError: a key that is missing, wrong or not served; the message names it.
    """
    fields = Fields(body)
    fields.ignore(*IGNORED)
    max_tokens = fields.integer("max_tokens", low=1)
    if max_tokens is None and not counting:
        raise wrong("max_tokens", None, "an integer of at least 1 (it is required)")
    turns = fields.items("messages")
    if not turns:
        raise wrong("messages", turns, "a non-empty list")
    messages = read_system(fields.get("system"))
    for i, turn in enumerate(turns):
        messages += read_turn(turn, f"messages[{i}]", pictures)
    tools = _tools(fields)
    choice, parallel = _choice(fields, tools)
    stream = fields.flag("stream")
    _refuse_servers(fields)
    call = ChatCall(
        messages=messages,
        tools=tools,
        tool_choice=choice,
        max_tokens=max_tokens,
        temperature=fields.number("temperature", low=0, high=1),
        stop=fields.strings("stop_sequences", most=MAX_STOPS),
        sampling=Sampling(
            top_p=fields.number("top_p", low=0, high=1),
            top_k=fields.integer("top_k", low=0) or None,
        ),
        template_kwargs=_thinking(fields) | fields.mapping("chat_template_kwargs"),
        requested={key: value for key, value in body.items() if key not in NOT_SAMPLING},
        parallel_tool_calls=parallel,
        continue_final=messages[-1]["role"] == "assistant",
        dialect="messages",
    )
    fields.ignore("swarm")
    call.unknown = fields.unknown()
    if pictures is not None:
        call.take_in(pictures)
    return MessagesBody(call, stream)


def _tools(fields: Fields) -> list[dict[str, Any]]:
    return check_names([_tool(tool, f"tools[{i}]") for i, tool in enumerate(fields.items("tools"))])


def _tool(value: object, where: str) -> dict[str, Any]:
    tool = Fields(value, where)
    kind = tool.text("type")
    name = tool.text("name")
    if not name:
        raise wrong(f"{where}.name", name, "a non-empty string")
    if kind not in (None, "custom") and "input_schema" not in tool:
        raise unsupported(
            f"{where}.type",
            kind,
            "Declare the tool with a name, a description and an input_schema.",
        )
    return function_tool(name, tool.text("description"), tool.mapping("input_schema"))


def _choice(fields: Fields, tools: list[dict[str, Any]]) -> tuple[Any, bool]:
    """Return the internal choice (``auto``, ``none``, ``required`` or ``{"name": ...}``) and whether calls may be parallel."""
    if "tool_choice" not in fields:
        return "auto", True
    given = Fields(fields.get("tool_choice"), "tool_choice")
    parallel = not given.flag("disable_parallel_tool_use")
    kind = given.text("type")
    if kind == "tool":
        return {"name": check_choice(given.text("name") or "", tools)}, parallel
    words = {"auto": "auto", "any": "required", "none": "none"}
    if kind not in words:
        raise wrong("tool_choice.type", kind, "'auto', 'any', 'tool' or 'none'")
    return words[kind], parallel


def _thinking(fields: Fields) -> dict[str, Any]:
    """What the template is told of thinking; nothing when the caller said nothing."""
    if "thinking" not in fields:
        return {}
    given = Fields(fields.get("thinking"), "thinking")
    kind = given.text("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise wrong("thinking.type", kind, "'enabled', 'adaptive' or 'disabled'")
    given.integer("budget_tokens", low=1)
    return {"enable_thinking": kind != "disabled"}


def _refuse_servers(fields: Fields) -> None:
    """Tools that Anthropic itself would run are not here."""
    servers = fields.items("mcp_servers")
    if servers:
        raise unsupported(
            "mcp_servers", servers, "Run the tools in the agent and declare them in 'tools'."
        )
