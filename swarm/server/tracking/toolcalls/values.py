"""JSON values that name a call."""

from __future__ import annotations

from typing import Any, cast

import orjson

from swarm.server.tracking.toolcalls.pieces import CallPiece


def call_of_text(text: str) -> CallPiece | None:
    """Read ``{"name": ..., "arguments": {...}}``; None when the text is not exactly that."""
    try:
        return call_of_value(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def call_of_value(value: object) -> CallPiece | None:
    """Read a call; arguments may also come as JSON text or, in Llama's words, as ``parameters``."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    name = given.get("name")
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return CallPiece(name, cast("dict[str, Any]", arguments)) if writable(arguments) else None


def writable(value: object) -> bool:
    """Whether the value can be written as JSON again: what is nested hundreds of levels deep cannot."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def calls_of_json(text: str, declared: set[str] | None = None) -> list[CallPiece] | None:
    """Read one call or a list of them; None when anything in it is no call, or of a tool that is not ``declared``."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    found = [call for item in items if (call := call_of_value(item)) is not None]
    known = all(declared is None or call.name in declared for call in found)
    return found if found and known and len(found) == len(items) else None


def ends_inside_string(text: str) -> bool:
    """Whether JSON that begins with ``text`` is inside a string at its end (a closing mark there is part of the string)."""
    inside = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = inside
        elif character == '"':
            inside = not inside
    return inside


def tool_names(tools: list[dict[str, Any]]) -> list[str]:
    """Names of the declared tools, in order."""
    return [str(tool.get("function", tool).get("name", "")) for tool in tools]
