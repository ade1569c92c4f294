"""Outside text made safe for Markdown: it can show itself, but not format, link, break a table or hide."""

from __future__ import annotations

import re
import unicodedata

_ACTIVE = re.compile(r"([\\`*_\[\]|~$])")
_BLOCK = re.compile(r"^(\d+(?=[.)])|(?=[#+=-]))")
"""Starts a list, a heading or a rule when it opens a line."""
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional marks, zero width), surrogate, private, unassigned, line and paragraph separators."""


def visible(text: str, keep: str = "") -> str:
    """Drop characters that do not show; those in ``keep`` stay."""
    return "".join(c for c in text if c in keep or unicodedata.category(c) not in _HIDDEN)


def inline(text: object, limit: int = 200) -> str:
    """One line of plain text for a table cell or a sentence; longer text is cut and ends with an ellipsis."""
    line = " ".join(visible(str(text), keep="\n\t\r").split())
    if len(line) > limit:
        line = line[: limit - 1].rstrip() + "…"
    line = "".join(_HTML.get(c, c) for c in line)
    line = _ACTIVE.sub(r"\\\1", line)
    line = _BLOCK.sub(r"\1\\", line)
    return re.sub(r"(?i)\bwww\.", "www&#46;", line.replace("://", ":&#47;&#47;"))


_LOUD = re.compile(r"([\\`*|~$])")
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BRACKET = re.compile(r"\](?=[(\[:])|!(?=\[)")
"""What would make a bracket a link or an image; a bracket alone, as around an interval, does nothing."""


def prose(text: object) -> str:
    """A sentence of any length on one line: whatever could format, link or hide is escaped, a number's brackets stay as they are.

    Spaces at both ends stay (it may be a part of a line). What opens a line is for ``starts_no_block``.
    """
    line = re.sub(r"\s+", " ", visible(str(text), keep="\n\t\r"))
    line = "".join(_HTML.get(c, c) for c in line)
    line = _LOUD.sub(r"\\\1", line)
    line = _LOOSE_UNDERSCORE.sub(r"\\_", line)
    line = _BRACKET.sub(lambda found: "\\" + found.group(), line)
    return re.sub(r"(?i)\bwww\.", "www&#46;", line.replace("://", ":&#47;&#47;"))


def starts_no_block(line: str) -> str:
    """The escaped line, such that it opens no list, heading or rule."""
    return _BLOCK.sub(r"\1\\", line)


def code(text: object, limit: int = 200) -> str:
    """An identifier as code, for a table cell: backticks, pipes and hidden characters are replaced."""
    line = " ".join(visible(str(text), keep="\n\t\r").split())[:limit]
    safe = line.replace("`", "'").replace("|", "¦")
    return f"`{safe}`" if safe else "n/a"


def quoted(text: str, language: str = "text") -> str:
    """A whole document as a fenced block that its own content can not close."""
    body = visible(text.replace("\r\n", "\n").replace("\r", "\n"), keep="\n\t")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body.strip(chr(10))}\n{fence}"
