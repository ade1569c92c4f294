"""Control tokens stay the template's own: what a user, a tool or a document says is text, also when it spells one.

``<|im_end|>`` in a message would else end that message, and whoever wrote it could speak as somebody else. Such spellings are
broken by a mark before the template sees them; the encoder takes the mark out again and encodes that piece as plain text.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

MARK = "\U0010fffd"
"""A character that is not assigned to anything and never will be (private use, last plane). It reaches no model."""
SPOKEN = frozenset({"content", "reasoning_content"})
"""Of the assistant these are left alone: what it said may well hold its own marks, and what was sampled here is spliced in as ids."""


class SpecialGuard:
    """Knows the special tokens of one tokenizer."""

    def __init__(self, tokens: list[str], picture: str = "") -> None:
        """``tokens`` are the texts of the control tokens (``special`` in tokenizer.json); shorter than two characters cannot be guarded.

        ``picture`` stands for a picture, and nobody spells one, the assistant neither. Empty: the model knows none.
        """
        self._picture = picture
        longest_first = sorted((t for t in tokens if len(t) > 1), key=len, reverse=True)
        self._pattern = (
            re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        )
        self._shows_in_json = all(orjson.dumps(t).decode() == f'"{t}"' for t in longest_first)

    def messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages with control tokens broken in what others said, and in names, ids and arguments of calls.

        The same list when there are none.
        """
        if self._pattern is None:
            return messages
        if self._shows_in_json:
            # One search over all of them: nearly all hold none.
            whole = orjson.dumps(messages).decode()
            if MARK not in whole and self._pattern.search(whole) is None:
                return messages
        guarded = [self._message(message) for message in messages]
        changed = any(new is not old for new, old in zip(guarded, messages, strict=True))
        return guarded if changed else messages

    def tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tools with control tokens broken in names, descriptions and schemas; the same list when there are none."""
        return self._value(tools) if tools else tools

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        own = message.get("role") == "assistant"
        changed: dict[str, Any] = {}
        for key, value in message.items():
            if key == "role":
                continue
            spoken = own and key in SPOKEN
            broken = self._unpictured(value) if spoken else self._value(value)
            if broken is not value:
                changed[key] = broken
        return {**message, **changed} if changed else message

    def _unpictured(self, value: Any) -> Any:
        """Break what spells a picture in something that the assistant said."""
        if not self._picture or not isinstance(value, str) or self._picture not in value:
            return value
        return value.replace(self._picture, self._picture[0] + MARK + self._picture[1:])

    def _value(self, value: Any) -> Any:
        """Break every string of a JSON value; the same object when none holds a control token."""
        if isinstance(value, str):
            return self.broken(value)
        if not isinstance(value, list | dict) or self._pattern is None:
            return value
        # One search over the whole: nearly all hold none.
        if self._pattern.search(orjson.dumps(value).decode()) is None:
            return value
        return self._deep(value)

    def _deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.broken(value)
        if isinstance(value, list):
            return [self._deep(item) for item in value]
        if isinstance(value, dict):
            return {self.broken(key): self._deep(item) for key, item in value.items()}
        return value

    def broken(self, text: str) -> str:
        """Return ``text`` with a mark inside each spelling of a control token; the same object when there is none."""
        if self._pattern is None:
            return text
        if MARK in text:
            text = text.replace(MARK, "")
        if self._pattern.search(text) is None:
            return text
        return self._pattern.sub(lambda found: found[0][0] + MARK + found[0][1:], text)
