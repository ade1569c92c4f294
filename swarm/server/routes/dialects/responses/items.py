"""Items of the Responses dialect, read into the internal form of messages.

One turn of the model is several items (reasoning, message, function calls); they become one assistant message. The order within
a turn is that in which the server gives them out.
"""

from __future__ import annotations

from typing import Any

import orjson

from swarm.server.pictures.intake import OWN_URLS, Intake
from swarm.server.pictures.parts import content_of
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.responses.tools import custom_arguments, seen_name

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


def read_items(
    items: list[Any], where: str = "input", pictures: Intake | None = None
) -> list[dict[str, Any]]:
    """Return the messages of a list of items, in order.

    ``pictures`` takes in those of the user and of tools; None: the served model reads text only.

    Raises:
        RequestError: an item that is malformed, or that the served model cannot be shown.
    """
    turns = _Turns()
    for i, value in enumerate(items):
        item = Fields(value, f"{where}[{i}]")
        kind = item.text("type") or ("message" if "role" in item else "")
        if kind == "message":
            _message(item, turns, pictures)
        elif kind == "reasoning":
            turns.assistant("reasoning_content", _reasoning(item))
        elif kind == "function_call":
            turns.call(_function_call(item))
        elif kind == "custom_tool_call":
            turns.call(_custom_call(item))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            turns.add(_function_output(item, pictures))
        else:
            raise unsupported(
                item.path("type"),
                kind,
                "Send messages, reasoning, function calls and their outputs.",
            )
    return turns.messages


class _Turns:
    """Messages so far; what belongs to the assistant's turn is gathered in its last message."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open = False

    def add(self, message: dict[str, Any]) -> None:
        """Append a message of somebody else; the assistant's turn is over."""
        self.messages.append(message)
        self._open = False

    def assistant(self, key: str, text: str) -> None:
        """Add text to the assistant's turn; a second text, or thinking after text, begins another one."""
        turn = self._turn()
        begun = turn.get("content") is not None or "tool_calls" in turn
        if begun and (key == "reasoning_content" or "tool_calls" in turn or turn.get(key)):
            self._open = False
            turn = self._turn()
        turn[key] = (turn.get(key) or "") + text

    def call(self, call: dict[str, Any]) -> None:
        """Add a function call to the assistant's turn."""
        self._turn().setdefault("tool_calls", []).append(call)

    def _turn(self) -> dict[str, Any]:
        if not self._open:
            self.messages.append({"role": "assistant", "content": None})
            self._open = True
        return self.messages[-1]


def _message(item: Fields, turns: _Turns, pictures: Intake | None) -> None:
    role = item.text("role")
    if role not in ROLES:
        raise wrong(item.path("role"), role, "'user', 'assistant', 'system' or 'developer'")
    content, where = item.get("content"), item.path("content")
    if role == "assistant":
        turns.assistant("content", text_of(content, where))
    else:
        seen = pictures if role == "user" else None
        turns.add({"role": ROLES[role], "content": _content(content, where, seen)})


def _reasoning(item: Fields) -> str:
    """Thinking as it was given out; a summary stands for it when there is nothing else."""
    content = item.items("content") or item.items("summary")
    return text_of(content, item.path("content"))


def _function_call(item: Fields) -> dict[str, Any]:
    name, arguments = item.text("name"), item.text("arguments")
    call_id = item.text("call_id") or item.text("id")
    if not name or arguments is None or not call_id:
        raise wrong(item.path("name"), name, "a function call with call_id, name and arguments")
    return _call(item, call_id, name, arguments)


def _custom_call(item: Fields) -> dict[str, Any]:
    name, text, call_id = item.text("name"), item.text("input"), item.text("call_id")
    if not name or text is None or not call_id:
        raise wrong(item.path("name"), name, "a custom tool call with call_id, name and input")
    return _call(item, call_id, name, custom_arguments(text))


def _call(item: Fields, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": seen_name(item.text("namespace"), name), "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _function_output(item: Fields, pictures: Intake | None) -> dict[str, Any]:
    call_id, output = item.text("call_id"), item.get("output")
    if not call_id:
        raise wrong(item.path("call_id"), call_id, "a non-empty string")
    if isinstance(output, dict):
        content = orjson.dumps(output).decode()
    else:
        content = _content(output, item.path("output"), pictures)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _content(value: object, where: str, pictures: Intake | None) -> str | list[dict[str, Any]]:
    """As ``text_of``, with the pictures among the parts."""
    if pictures is None or not isinstance(value, list):
        return text_of(value, where)
    return content_of(
        _picture(part, f"{where}[{i}]", pictures)
        if isinstance(part, dict) and part.get("type") == "input_image"
        else _part(part, f"{where}[{i}]")
        for i, part in enumerate(value)
    )


def _picture(value: object, where: str, pictures: Intake) -> dict[str, Any]:
    part = Fields(value, where)
    part.ignore("type")
    url, file_id = part.get("image_url"), part.text("file_id")
    if file_id is not None and url is None:
        raise unsupported(part.path("file_id"), file_id, OWN_URLS)
    pictures.unknown += part.unknown()
    return pictures.url(url, part.path("image_url"))


def text_of(value: object, where: str) -> str:
    """Return the text of a content field: a string, or a list of text parts.

    Raises:
        UnsupportedParameter: a part that is not text.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(where, value, "a string or a list of parts")
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(value))


def _part(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    part = Fields(value, where)
    kind = part.text("type")
    if kind not in TEXTS:
        raise unsupported(part.path("type"), kind, "The served model reads text only.")
    text = part.text("refusal" if kind == "refusal" else "text")
    if text is None:
        raise wrong(part.path("text"), None, "a string")
    return text
