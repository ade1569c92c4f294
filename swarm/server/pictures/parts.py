"""Pictures inside of messages: a part of a content list that names a picture by its digest. The bytes lie elsewhere.

So whatever shows, journals or compares messages handles a few words a picture:
``{"type": "image", "sha256": ..., "media_type": ..., "bytes": ..., "width": ..., "height": ...}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

KIND = "image"


def is_picture(part: object) -> bool:
    """Whether a part of a content list names a picture."""
    return isinstance(part, dict) and part.get("type") == KIND and "sha256" in part


def content_of(pieces: Iterable[str | dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a message's content from texts and pictures in order: one text when there are no pictures, else parts.

    Texts beside each other are joined, so that a content has one form however its sender cut it. No pieces: empty text.
    """
    parts: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, dict):
            parts.append(piece)
        elif piece and parts and parts[-1]["type"] == "text":
            parts[-1] = {"type": "text", "text": parts[-1]["text"] + piece}
        elif piece:
            parts.append({"type": "text", "text": piece})
    if any(is_picture(part) for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def text_in(content: list[dict[str, Any]]) -> str:
    """Return the text of a content that has pictures, without them."""
    return "".join(part["text"] for part in content if part["type"] == "text")


def key_of(content: list[dict[str, Any]]) -> bytes:
    """Return the identity of a content that has pictures: its texts and digests; never equal to that of a text."""
    return orjson.dumps(
        [part["sha256"] if is_picture(part) else [part["text"]] for part in content]
    )


def digests(messages: Iterable[dict[str, Any]]) -> list[str]:
    """Return the digest of every picture of ``messages``, in order; one that stands there twice comes twice."""
    return [
        part["sha256"]
        for message in messages
        if type(content := message.get("content")) is list
        for part in content
        if is_picture(part)
    ]


def for_template(messages: list[dict[str, Any]], *, always_parts: bool) -> list[dict[str, Any]]:
    """Return messages as templates expect them: of a picture only that there is one.

    ``always_parts``: contents without pictures are lists as well.
    """
    shown: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        if type(content) is list:
            plain = [{"type": KIND} if is_picture(part) else part for part in content]
            shown.append({**message, "content": plain})
        elif always_parts:
            parts = [{"type": "text", "text": content}] if content else []
            shown.append({**message, "content": parts})
        else:
            shown.append(message)
    return shown
