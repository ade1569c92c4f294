"""What a parser hands out, and the protocol of parsers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of the answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """One complete call: the function's name and its arguments as a JSON object."""

    name: str
    arguments: dict[str, Any]


Piece = TextPiece | CallPiece


class Parser(Protocol):
    """Reads one answer. The pieces do not depend on how the text was cut, except that text may come in more of them."""

    def feed(self, text: str) -> list[Piece]:
        """Take more text; return what is certain now."""
        ...

    def finish(self) -> list[Piece]:
        """Say that the answer is over; return what was held back. Called once, last."""
        ...


class PlainText:
    """No tools are declared: everything is text."""

    def feed(self, text: str) -> list[Piece]:
        """Return the text as it came."""
        return [TextPiece(text)] if text else []

    def finish(self) -> list[Piece]:
        """Nothing is ever held back."""
        return []
