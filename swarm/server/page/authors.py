"""Who wrote each token of a prompt: the template, a message of the caller by its role, or the model itself.

The template is asked: it renders the same messages with a sentinel in place of each content, and what it writes around the
sentinels is its own. When a template treats the stand-ins differently (it may split contents), contents are searched for in
order, which can name the template's text wrongly only where both spell the same.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from enum import StrEnum
from typing import Any, NamedTuple

from swarm.protocol.errors import RequestError
from swarm.protocol.records import CallRecord
from swarm.server.tracking.guard import MARK
from swarm.server.tracking.render import normal_message
from swarm.server.tracking.tokenizer import ChatTokenizer


class Author(StrEnum):
    """Who wrote a token."""

    TEMPLATE = "template"
    SYSTEM = "system"
    USER = "user"
    TOOL = "tool"
    ASSISTANT = "assistant"  # an assistant message that the caller made up
    SAMPLED = "sampled"


class _Written(NamedTuple):
    """A message's content, and whose it is."""

    author: Author
    content: bytes


_ROLES = {author.value: author for author in (Author.SYSTEM, Author.USER, Author.TOOL)}
_STEM = f"WRITTENBY{secrets.token_hex(8)}N"
"""Random, so that no message contains it. Never leaves this file."""


def prompt_authors(
    call: CallRecord, parent: CallRecord | None, cut: int, tokenizer: ChatTokenizer
) -> list[Author]:
    """Return the author of each prompt token of ``call`` from position ``cut`` on.

    ``cut`` is the length of the parent's prompt and answer when the prompt continues them, else 0 (then ``parent`` is None).
    """
    ids = call.prompt_ids[cut:]
    spelled = [tokenizer.token_bytes(token) for token in ids]
    text = b"".join(spelled)
    first = 0 if parent is None else len(parent.messages) + 1
    written = [_written(message) for message in call.messages[first:]]
    starts, authors = _exact(call, parent, written, text, tokenizer) or _searched(written, text)
    found: list[Author] = []
    position = 0
    for piece in spelled:
        found.append(authors[bisect_right(starts, position) - 1])
        position += len(piece)
    return found


def _written(message: dict[str, Any]) -> _Written:
    author = _ROLES.get(str(message.get("role")), Author.ASSISTANT)
    if message.get("role") == "developer":
        author = Author.SYSTEM
    try:
        content = normal_message(message)["content"]
    except RequestError:
        content = ""
    return _Written(author, str(content).encode(errors="replace"))


_Regions = tuple[list[int], list[Author]]
"""Byte positions at which an author begins (the first is 0), and the authors."""


def _exact(
    call: CallRecord,
    parent: CallRecord | None,
    written: list[_Written],
    text: bytes,
    tokenizer: ChatTokenizer,
) -> _Regions | None:
    """Ask the template; None when its pieces and the contents do not spell ``text`` exactly."""
    pieces = _template_pieces(call, parent, written, tokenizer)
    contents = [one for one in written if one.content]
    if pieces is None or len(pieces) != len(contents) + 1:
        return None
    regions = _Builder()
    spelled: list[bytes] = []
    for i, piece in enumerate(pieces):
        regions.add(Author.TEMPLATE, len(piece))
        spelled.append(piece)
        if i < len(contents):
            regions.add(contents[i].author, len(contents[i].content))
            spelled.append(contents[i].content)
    return regions.done() if b"".join(spelled) == text else None


def _template_pieces(
    call: CallRecord,
    parent: CallRecord | None,
    written: list[_Written],
    tokenizer: ChatTokenizer,
) -> list[bytes] | None:
    """Return what the template writes before, between and after the contents of ``written``."""
    kwargs = call.requested.get("chat_template_kwargs")
    first = 0 if parent is None else len(parent.messages) + 1
    try:
        normals = [normal_message(message) for message in call.messages]
        for i, one in enumerate(written):
            if one.content:
                normals[first + i] = {**normals[first + i], "content": f"{_STEM}{i}."}
        if parent is not None:
            normals[first - 1] = {"role": "assistant", "content": f"{_STEM}P."}
        rendered = tokenizer.render(normals, call.tools, kwargs if isinstance(kwargs, dict) else {})
        rendered = rendered.replace(MARK, "")
    except RequestError:
        return None
    rest = rendered
    if parent is not None:
        _, found, rest = rendered.partition(f"{_STEM}P.")
        if not found:
            return None
        ended_by = tokenizer.eos_texts.get((parent.sampled_ids or [-1])[-1], "")
        rest = rest.removeprefix(ended_by) if ended_by else rest
    pieces: list[bytes] = []
    for i, one in enumerate(written):
        if one.content:
            piece, found, rest = rest.partition(f"{_STEM}{i}.")
            if not found:
                return None
            pieces.append(piece.encode())
    return [*pieces, rest.encode()]


def _searched(written: list[_Written], text: bytes) -> _Regions:
    """Find the contents in order; one that is not found word for word is left to the template."""
    regions, cursor = _Builder(), 0
    for one in written:
        content = one.content if one.content in text[cursor:] else one.content.strip()
        at = text.find(content, cursor) if content else -1
        if at >= 0:
            regions.add(Author.TEMPLATE, at - cursor)
            regions.add(one.author, len(content))
            cursor = at + len(content)
    regions.add(Author.TEMPLATE, len(text) - cursor)
    return regions.done()


class _Builder:
    """Regions one after the other."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._authors: list[Author] = []
        self._end = 0

    def add(self, author: Author, length: int) -> None:
        if length > 0:
            self._starts.append(self._end)
            self._authors.append(author)
            self._end += length

    def done(self) -> _Regions:
        if not self._starts:
            return [0], [Author.TEMPLATE]
        return self._starts, self._authors
