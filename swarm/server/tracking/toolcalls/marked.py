"""Calls between an opening and a closing mark, with text around them (Hermes, Qwen)."""

from __future__ import annotations

from swarm.server.tracking.toolcalls.pieces import Piece, TextPiece
from swarm.server.tracking.toolcalls.values import call_of_text, ends_inside_string


class MarkedCalls:
    """``open {"name": ..., "arguments": {...}} close`` is a call; spaces between calls, and beside them, are layout and left out."""

    def __init__(self, opening: str, closing: str) -> None:
        self._opening, self._closing = opening, closing
        self._held = ""
        """Text that may be the beginning of a call, or spaces that may stand before one."""
        self._body: str | None = None
        """What came after an opening mark; None = outside."""
        self._gap = ""
        """Spaces before that opening mark."""
        self._after_call = False
        """Nothing but spaces came since the last call."""

    def feed(self, text: str) -> list[Piece]:
        """Take more text."""
        pieces: list[Piece] = []
        self._held += text
        while True:
            found = self._inside() if self._body is not None else self._outside()
            if found is None:
                break
            pieces += found
        return pieces

    def finish(self) -> list[Piece]:
        """Give out what is held: an opened call that was never closed is text."""
        rest = self._held
        if self._body is not None:
            rest = f"{self._gap}{self._opening}{self._body}{rest}"
        if self._after_call:
            rest = rest.strip()
        return [TextPiece(rest)] if rest else []

    def _outside(self) -> list[Piece] | None:
        """Give out the text that is certain; None = nothing more to decide now."""
        before, mark, after = self._held.partition(self._opening)
        if mark:
            text = before.rstrip()
            self._held, self._body, self._gap = after, "", before[len(text) :]
            return self._text(text)
        keep = overlap(self._held, self._opening)
        sure = self._held[: len(self._held) - keep].rstrip()
        if not sure:
            return None
        self._held = self._held[len(sure) :]
        return self._text(sure) or None

    def _text(self, text: str) -> list[Piece]:
        if text and self._after_call:
            text = text.lstrip()
            self._after_call = False
        return [TextPiece(text)] if text else []

    def _inside(self) -> list[Piece] | None:
        assert self._body is not None
        more, mark, after = self._held.partition(self._closing)
        if not mark:
            return None
        body = self._body + more
        if ends_inside_string(body):
            self._body, self._held = body + mark, after
            return []
        self._body, self._held = None, after
        call = call_of_text(body)
        if call is not None:
            self._after_call = True
            return [call]
        # Not a call after all: it is text as it stood, the spaces before it included.
        gap = "" if self._after_call else self._gap
        self._after_call = False
        return [TextPiece(f"{gap}{self._opening}{body}{mark}")]


def overlap(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` may begin ``mark``."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0
