"""Tool calls inside generated text, by named parser.

A parser turns the text of an answer into content plus calls in OpenAI's shape. What does not parse stays text: an
agent can then see and punish it, and nothing that was sampled is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from swarm.protocol.errors import ConfigError

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_HERMES = re.compile(rf"{_OPEN}\s*(\{{.*?\}})\s*{_CLOSE}", re.DOTALL)


@dataclass(frozen=True)
class FoundCall:
    """One call found in a text: the function's name and its arguments as a JSON object."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ParsedReply:
    """An answer split into what is said and what is called."""

    content: str | None
    """None when there are calls and no text beside them."""
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """OpenAI's shape: id, type, function {name, arguments (JSON text)}."""

    def message(self) -> dict[str, Any]:
        """Return the assistant message: ``tool_calls`` is present only when there are any."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


ToolParser = Callable[[str, list[dict[str, Any]]], tuple[str, list[FoundCall]]]
"""(text, declared tools) -> (text that is left, calls in order)."""


def parse_expression(text: str, tools: list[dict[str, Any]]) -> tuple[str, list[FoundCall]]:
    """The whole answer ``<tool_call>37+48</tool_call>`` calls the first declared tool with ``{"expression": "37+48"}``."""
    body = text.strip()
    if not (body.startswith(_OPEN) and body.endswith(_CLOSE)):
        return text, []
    expression = body[len(_OPEN) : -len(_CLOSE)]
    if len(body) < len(_OPEN) + len(_CLOSE) or _OPEN in expression or _CLOSE in expression:
        return text, []
    return "", [FoundCall(_tool_name(tools[0]), {"expression": expression})]


def parse_hermes(text: str, tools: list[dict[str, Any]]) -> tuple[str, list[FoundCall]]:
    """Every ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` is one call; the text around them is kept."""
    del tools
    calls: list[FoundCall] = []

    def take(match: re.Match[str]) -> str:
        call = _call_of(match.group(1))
        if call is None:
            return match.group(0)
        calls.append(call)
        return ""

    rest = _HERMES.sub(take, text)
    return (rest.strip(), calls) if calls else (text, [])


def parse_json(text: str, tools: list[dict[str, Any]]) -> tuple[str, list[FoundCall]]:
    """The whole answer is one JSON call ``{"name": ..., "arguments"|"parameters": {...}}`` of a declared tool, or a list of them."""
    declared = {_tool_name(tool) for tool in tools}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text, []
    items = value if isinstance(value, list) else [value]
    calls = [_call_of_value(item) for item in items]
    found = [call for call in calls if call is not None and call.name in declared]
    return ("", found) if found and len(found) == len(items) else (text, [])


PARSERS: dict[str, ToolParser] = {
    "expression": parse_expression,
    "hermes": parse_hermes,
    "json": parse_json,
}


def tool_parser(name: str) -> ToolParser:
    """Return the parser of that name.

    Raises:
        ConfigError: no such parser; the hint lists them.
    """
    try:
        return PARSERS[name]
    except KeyError:
        raise ConfigError(
            f"tool parser {name!r} is unknown",
            hint=f"set model.tool_parser to one of {', '.join(map(repr, PARSERS))}",
        ) from None


def parse_reply(
    parser: ToolParser, text: str, tools: list[dict[str, Any]], *, call_id: str
) -> ParsedReply:
    """Split an answer. Without declared tools (or with ``tool_choice`` none: pass ``[]``) everything is text.

    Call ids are ``<call_id>-<n>``: choose ``call_id`` unique within the episode.
    """
    if not tools:
        return ParsedReply(content=text)
    content, found = parser(text, tools)
    calls = [
        {
            "id": f"{call_id}-{n}",
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for n, call in enumerate(found)
    ]
    return ParsedReply(content=content if content or not calls else None, tool_calls=calls)


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("function", tool).get("name", ""))


def _call_of(text: str) -> FoundCall | None:
    try:
        return _call_of_value(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _call_of_value(value: object) -> FoundCall | None:
    """Read a call; arguments may also come as JSON text or, in Llama's words, as ``parameters``."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    return FoundCall(value["name"], arguments) if isinstance(arguments, dict) else None
