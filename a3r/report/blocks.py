"""A report as a sequence of blocks: written once, shown as Markdown and as HTML, so both say the same.

Text in a block is never markup: whatever it holds is escaped by the face that shows it. Nothing here knows a face.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

CUT = 200
"""Characters of outside text in a table's cell; longer text ends with an ellipsis."""


@dataclass(frozen=True)
class Strong:
    """Emphasised text."""

    text: str


@dataclass(frozen=True)
class Code:
    """An identifier, a file name, a hash."""

    text: str


@dataclass(frozen=True)
class Link:
    """A link to a file of the report's own folder; ``href`` is ours, never outside text."""

    text: str
    href: str


@dataclass(frozen=True)
class Cut:
    """Outside text of any length, on one line, cut at ``limit`` characters."""

    text: str
    limit: int = CUT


Span: TypeAlias = str | Strong | Code | Link | Cut
"""A plain string is shown whole."""
Line: TypeAlias = Span | tuple[Span, ...]


def spans(line: Line) -> tuple[Span, ...]:
    """The spans of a line."""
    return line if isinstance(line, tuple) else (line,)


@dataclass(frozen=True)
class Heading:
    """``level`` from 1."""

    level: int
    text: Line
    kind: str = "heading"


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    text: Line
    kind: str = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: tuple[Line, ...]
    kind: str = "bullets"


@dataclass(frozen=True)
class Table:
    """Every row has as many cells as ``header``."""

    header: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]
    caption: str = ""
    kind: str = "table"


@dataclass(frozen=True)
class Quote:
    """A whole document from outside, shown as it is."""

    text: str
    kind: str = "quote"


@dataclass(frozen=True)
class Prose:
    """Somebody's own words in paragraphs, marked as such."""

    text: str
    kind: str = "prose"


@dataclass(frozen=True)
class Listing:
    """Lines of code or a diff, folded under ``summary`` where a face can fold."""

    text: str
    language: str = "text"
    summary: str = ""
    kind: str = "listing"


@dataclass(frozen=True)
class Image:
    """A figure with its caption and its data."""

    svg: str
    """Path in the report's folder."""
    data: str
    title: str
    caption: str
    kind: str = "image"


Block: TypeAlias = Heading | Paragraph | Bullets | Table | Quote | Prose | Listing | Image


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    language: str = "en"
    blocks: tuple[Block, ...] = field(default_factory=tuple)
