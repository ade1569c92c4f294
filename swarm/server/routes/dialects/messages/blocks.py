"""Content blocks of the Messages dialect, read into the internal form of messages.

A turn of the user may become several messages: one of role ``tool`` for each tool result, then its text. Nothing is added and
nothing is dropped: a block that cannot be shown to the served model is refused by name.
"""

from __future__ import annotations

from typing import Any

import orjson

from swarm.server.pictures.intake import OWN_URLS, Intake
from swarm.server.pictures.parts import content_of
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong


def read_system(value: object) -> list[dict[str, Any]]:
    """Return the system message, or nothing when none (or only empty text) was sent."""
    text = _text_of(value, "system") if value is not None else ""
    return [{"role": "system", "content": text}] if text else []


def read_turn(value: object, where: str, pictures: Intake | None = None) -> list[dict[str, Any]]:
    """Return one element of ``messages`` as messages of the internal form, in order.

    ``pictures`` takes in those of the user and of tools; None: the served model reads text only.
    """
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
    return [_assistant(blocks)] if role == "assistant" else _user(blocks, pictures)


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


def _user(blocks: list[Fields], pictures: Intake | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    said: list[str | dict[str, Any]] = []
    for block in blocks:
        if block.text("type") == "tool_result":
            messages.append(_tool_result(block, pictures))
        else:
            said.append(_shown_block(block, pictures))
    return [*messages, {"role": "user", "content": content_of(said)}] if said else messages


def _tool_result(block: Fields, pictures: Intake | None) -> dict[str, Any]:
    given = block.get("content")
    content: str | list[dict[str, Any]] = ""
    if given is not None:
        blocks = _blocks_of(given, block.path("content"))
        content = content_of(
            one if isinstance(one, str) else _shown_block(one, pictures) for one in blocks
        )
    block.flag("is_error")
    return {"role": "tool", "tool_call_id": _needed(block, "tool_use_id"), "content": content}


def _text_of(value: object, where: str) -> str:
    blocks = _blocks_of(value, where)
    return "".join(one if isinstance(one, str) else _text_block(one) for one in blocks)


def _blocks_of(value: object, where: str) -> list[str | Fields]:
    """The blocks of a content; one that is a string stands for itself."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise wrong(where, value, "a string or a list of text blocks")
    return [Fields(block, f"{where}[{i}]") for i, block in enumerate(value)]


def _shown_block(block: Fields, pictures: Intake | None) -> str | dict[str, Any]:
    """Text of a block, or the part for its picture."""
    if pictures is None or block.text("type") != "image":
        return _text_block(block)
    source = Fields(block.get("source"), block.path("source"))
    kind = source.text("type")
    if kind != "base64":
        raise unsupported(source.path("type"), kind, OWN_URLS)
    return pictures.base64(source.get("data"), source.path("data"))


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
