"""Answers that are a call as a whole, or no call at all: nothing goes out before that is decided."""

from __future__ import annotations

from collections.abc import Callable

from swarm.server.tracking.toolcalls.pieces import CallPiece, Piece, TextPiece

MayBegin = Callable[[str], bool]
"""Whether a text can still become a call; asked with all text so far."""
ReadWhole = Callable[[str], list[CallPiece] | None]
"""The calls of a whole answer; None = it is text."""


class WholeAnswer:
    """Holds the answer back while it may be a call; the first text that rules it out goes on at once, and so does the rest."""

    def __init__(self, may_begin: MayBegin, read: ReadWhole) -> None:
        self._may_begin, self._read = may_begin, read
        self._held = ""
        self._is_text = False

    def feed(self, text: str) -> list[Piece]:
        """Take more text."""
        if self._is_text:
            return [TextPiece(text)] if text else []
        self._held += text
        if self._may_begin(self._held):
            return []
        self._is_text = True
        return [TextPiece(self._held)]

    def finish(self) -> list[Piece]:
        """Read what was held."""
        if self._is_text or not self._held:
            return []
        calls = self._read(self._held)
        return [TextPiece(self._held)] if calls is None else list(calls)


def begins_with(*marks: str) -> MayBegin:
    """A call begins with one of ``marks``, after spaces."""

    def may_begin(text: str) -> bool:
        start = text.lstrip()
        return any(start.startswith(mark) or mark.startswith(start) for mark in marks)

    return may_begin
