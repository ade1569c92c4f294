"""Messages and tools of a chat request, checked and put into the one form that rendering and tracking work with."""

from __future__ import annotations

from typing import Any

from swarm.protocol.errors import RequestError, UnsupportedParameter
from swarm.server.pictures.intake import Intake
from swarm.server.pictures.parts import content_of
from swarm.server.routes.dialects.common.fields import Fields

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""Role as sent -> role as rendered (templates know no ``developer``)."""
PICTURED = frozenset({"user", "tool"})
"""Roles whose messages may hold pictures."""


def read_messages(value: Any, pictures: Intake | None = None) -> list[dict[str, Any]]:
    """Return the messages with text parts joined, null fields removed and roles as templates know them.

    ``pictures`` takes in those of the messages; None: the served model reads text only.
    ``RequestError`` names the first message that is wrong, ``UnsupportedParameter`` a content part that is not served.
    """
    if not isinstance(value, list) or not value:
        raise RequestError(
            "'messages' must be a non-empty list.",
            hint="Send at least one user message.",
            parameter="messages",
        )
    return [_message(item, f"messages[{i}]", pictures) for i, item in enumerate(value)]


def read_tools(value: Any) -> list[dict[str, Any]]:
    """Return the declared tools as sent; each must be a function with a name, and names must differ."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(
            "'tools' must be a list.", hint="Leave it out when there are none.", parameter="tools"
        )
    names: set[str] = set()
    for i, tool in enumerate(value):
        name = _tool_name(tool, f"tools[{i}]")
        if name in names:
            raise RequestError(
                f"tools[{i}]: the name {name!r} is declared twice.",
                hint="Give each tool its own name.",
            )
        names.add(name)
    return value


def _message(item: Any, where: str, pictures: Intake | None) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise RequestError(
            f"{where} is not an object.",
            hint='Send {"role": ..., "content": ...}.',
            parameter=where,
        )
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(repr(name) for name in ROLES)
        raise RequestError(
            f"{where}.role is {role!r}.", hint=f"Use one of {known}.", parameter=where
        )
    if item.get("function_call"):
        raise UnsupportedParameter(
            f"{where}.function_call is not served.",
            hint="Use 'tools' and 'tool_calls'.",
            parameter="function_call",
        )
    message = {key: field for key, field in item.items() if field is not None}
    message["role"] = ROLES[role]
    content = item.get("content")
    if not isinstance(content, str):
        seen = pictures if role in PICTURED else None
        content = _content(content, f"{where}.content", seen)
    message["content"] = content
    if isinstance(item.get("reasoning"), str):  # newer vLLM's word for it
        message.setdefault("reasoning_content", message.pop("reasoning"))
    if "tool_calls" in message:
        message["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
        if not message["tool_calls"]:
            del message["tool_calls"]
    return message


def _content(value: Any, where: str, pictures: Intake | None) -> str | list[dict[str, Any]] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise RequestError(
            f"{where} must be a string or a list of text parts.",
            hint="Send plain text.",
            parameter=where,
        )
    return content_of(_part(part, f"{where}[{i}]", pictures) for i, part in enumerate(value))


def _part(part: Any, where: str, pictures: Intake | None) -> str | dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image_url" and pictures is not None:
        return _picture(Fields(part, where), pictures)
    if kind != "text":
        raise UnsupportedParameter(
            f"{where} has type {kind!r}; this server reads text only.",
            hint="Send parts of type 'text'; 'image_url' to a model that reads pictures, in messages of the user or of a tool.",
            parameter=where,
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(
            f"{where}.text is not a string.", hint="Send the text of the part.", parameter=where
        )
    return text


def _picture(part: Fields, pictures: Intake) -> dict[str, Any]:
    given = part.get("image_url")
    if isinstance(given, str):
        return pictures.url(given, part.path("image_url"))
    fields = Fields(given, part.path("image_url"))
    url = fields.get("url")
    pictures.unknown += fields.unknown()
    return pictures.url(url, fields.path("url"))


def _tool_calls(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise RequestError(
            f"{where} must be a list.",
            hint="Send back the assistant message as it came.",
            parameter=where,
        )
    for i, call in enumerate(value):
        function = call.get("function") if isinstance(call, dict) else None
        fields = (
            (function.get("name"), function.get("arguments")) if isinstance(function, dict) else ()
        )
        if not fields or not all(isinstance(field, str) for field in fields):
            raise RequestError(
                f"{where}[{i}] needs function.name and function.arguments, both strings.",
                hint="Send back the assistant message as it came.",
                parameter=where,
            )
    return value


def _tool_name(tool: Any, where: str) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise UnsupportedParameter(
            f"{where} has type {kind!r}.",
            hint="Declare tools of type 'function'.",
            parameter="tools",
        )
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise RequestError(
            f"{where}.function.name is missing.", hint="Name the function.", parameter="tools"
        )
    return name
