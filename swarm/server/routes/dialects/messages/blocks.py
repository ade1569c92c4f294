"""Content blocks of the Messages dialect, read into the internal form of messages.

A turn of the user may become several messages: one of role ``tool`` for each tool result, then its text. Nothing is added and
nothing is dropped: a block that cannot be shown to a text model is refused by name.
"""

from __future__ import annotations

from typing import Any

import orjson

from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong


def read_system(value: object) -> list[dict[str, Any]]:
    """Return the system message, or nothing when none (or only empty text) was sent."""
    text = _text_of(value, "system") if value is not None else ""
    return [{"role": "system", "content": text}] if text else []


def read_turn(value: object, where: str) -> list[dict[str, Any]]:
    """Return one element of ``messages`` as messages of the internal form, in order."""
    turn = Fields(value, where)
    role, content = turn.text("role"), turn.get("content")
    if role == "system":
        return [{"role": "system", "content": _text_of(content, f"{where}.content")}]
    if role not in ("user", "assistant"):
        raise wrong(f"{where}.role", role, "'user' or 'assistant'")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise wrong(f"{where}.content", content, "a string or a list of blocks")
    blocks = [Fields(block, f"{where}.content[{i}]") for i, block in enumerate(content)]
    return [_assistant(blocks)] if role == "assistant" else _user(blocks)


def _assistant(blocks: list[Fields]) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.text("type")
        if kind == "text":
            texts.append(_needed(block, "text"))
        elif kind == "thinking":
            thoughts.append(_needed(block, "thinking"))
        elif kind == "tool_use":
            calls.append(_tool_use(block))
        elif kind != "redacted_thinking":  # ours are never redacted; another model's cannot be read
            raise _refused(block, kind)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_use(block: Fields) -> dict[str, Any]:
    arguments = orjson.dumps(block.mapping("input")).decode()
    return {
        "id": _needed(block, "id"),
        "type": "function",
        "function": {"name": _needed(block, "name"), "arguments": arguments},
    }


def _user(blocks: list[Fields]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    texts: list[str] = []
    for block in blocks:
        if block.text("type") == "tool_result":
            messages.append(_tool_result(block))
        else:
            texts.append(_text_block(block))
    return [*messages, {"role": "user", "content": "".join(texts)}] if texts else messages


def _tool_result(block: Fields) -> dict[str, Any]:
    content = block.get("content")
    text = "" if content is None else _text_of(content, block.path("content"))
    block.flag("is_error")
    return {"role": "tool", "tool_call_id": _needed(block, "tool_use_id"), "content": text}


def _text_of(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(where, value, "a string or a list of text blocks")
    blocks = (Fields(block, f"{where}[{i}]") for i, block in enumerate(value))
    return "".join(map(_text_block, blocks))


def _text_block(block: Fields) -> str:
    """Text of a block; a plain-text document is text as well."""
    kind = block.text("type")
    if kind == "text":
        return _needed(block, "text")
    if kind == "document":
        source = Fields(block.get("source"), block.path("source"))
        if source.text("type") == "text":
            return _needed(source, "data")
    raise _refused(block, kind)


def _needed(block: Fields, key: str) -> str:
    value = block.text(key)
    if value is None:
        raise wrong(block.path(key), None, "a string")
    return value


def _refused(block: Fields, kind: str | None) -> Exception:
    return unsupported(
        block.path("type"), kind, "The served model reads text only: send text blocks."
    )
