"""From an episode's trace to what its page shows, within a budget of tokens: a long episode comes in several pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from swarm.plain import plain
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.server.page.authors import Author, prompt_authors
from swarm.server.page.tokens import TokenView, prompt_tokens, sampled_tokens
from swarm.server.page.tree import Place, in_reading_order
from swarm.server.redaction import HIDDEN, Redactor
from swarm.server.tracking.tokenizer import ChatTokenizer

TOKENS_A_PAGE = 3000
PREVIEW = 90
"""Characters of a message that show before it is opened."""
TOKENS_A_FOLD = 250
"""Tokens in one foldable piece."""
Part = Literal["prompt", "answer"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tokens a page shows: all that fit (``call`` None), or those of one part of one call from ``first`` on."""

    call: int | None = None
    part: Part = "answer"
    first: int = 0
    budget: int | None = TOKENS_A_PAGE
    """None: everything, for a file."""


@dataclass(slots=True)
class Block:
    """The prompt (as far as it is new) or the answer of one call."""

    part: Part
    total: int
    first: int = 0
    folds: list[list[TokenView]] = field(default_factory=list[list[TokenView]])

    @property
    def shown(self) -> int:
        """Tokens on this page."""
        return sum(map(len, self.folds))

    @property
    def next_first(self) -> int | None:
        """Where another page goes on; None when the rest of the block is on this one."""
        end = self.first + self.shown
        return end if end < self.total else None


@dataclass(frozen=True, slots=True)
class Shown:
    """A message, or the tools, as text that is safe to show."""

    heading: str
    text: str

    @property
    def preview(self) -> str:
        """The beginning on one line."""
        return plain(self.text.strip(), PREVIEW)


@dataclass(slots=True)
class CallView:
    """One call of the page."""

    call: CallRecord
    parent_index: int | None
    depth: int
    cut: int
    prompt: Block
    answer: Block
    messages: list[Shown]
    """Those that the parent's entry does not show, and the reply."""

    @property
    def fate(self) -> str:
        """What became of the call's tokens, in one word or ``fate: reason``."""
        fate, reason = self.call.fate, self.call.fate_reason
        if fate is None:
            return "undecided"
        return f"{fate.value}: {reason.value}" if reason else fate.value

    @property
    def advantage(self) -> str:
        """The advantage that the call trained with: one number, or the smallest and the largest; empty when not known."""
        values = self.call.advantages
        if not values:
            return ""
        low, high = min(values), max(values)
        return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


@dataclass(slots=True)
class PageView:
    """A whole page."""

    trace: EpisodeTrace
    calls: list[CallView]
    choice: Choice
    authors: list[str] = field(default_factory=lambda: [author.value for author in Author])


def page_view(
    trace: EpisodeTrace,
    tokenizer: ChatTokenizer | None,
    choice: Choice,
    redactor: Redactor | None = None,
) -> PageView:
    """Return what the page shows. Answers get the budget first, then prompts, both in reading order.

    Without a tokenizer (its model is gone) tokens are shown by id, and prompts as the template's. ``redactor`` hides tokens that
    hold a part of a secret; what else is text in ``trace`` was redacted before.
    """
    places = in_reading_order(trace.calls)
    views = [_call_view(place) for place in places]
    left = _Budget(choice.budget)
    for part in ("answer", "prompt"):
        for place, view in zip(places, views, strict=True):
            block = view.answer if part == "answer" else view.prompt
            if choice.call is None or (choice.call, choice.part) == (place.call.index, part):
                _fill(block, place, tokenizer, choice, left)
                if redactor is not None and tokenizer is not None and block.folds:
                    _hide(block, redactor.hidden(_spelled(place.call, tokenizer)))
    if choice.call is not None:
        views = [view for view in views if view.call.index == choice.call]
    return PageView(trace, views, choice)


class _Budget:
    """Tokens that may still be shown; None = no end."""

    def __init__(self, tokens: int | None) -> None:
        self._left = tokens

    def take(self, wanted: int) -> int:
        """Return how many of ``wanted`` may be shown."""
        if self._left is None:
            return wanted
        taken = min(wanted, self._left)
        self._left -= taken
        return taken


def _call_view(place: Place) -> CallView:
    call = place.call
    return CallView(
        call=call,
        parent_index=place.parent.index if place.parent else None,
        depth=place.depth,
        cut=place.cut,
        prompt=Block("prompt", len(call.prompt_ids) - place.cut),
        answer=Block("answer", len(call.sampled_ids)),
        messages=list(_messages(place)),
    )


def _messages(place: Place) -> Iterator[Shown]:
    call = place.call
    if place.parent is None and call.tools:
        yield Shown("tools", _shown(call.tools))
    first = len(place.parent.messages) + 1 if place.parent else 0
    for message in call.messages[first:]:
        yield Shown(str(message.get("role", "?")), _message_text(message))
    yield Shown("reply", _message_text(call.reply))


def _message_text(message: dict[str, Any]) -> str:
    """The content alone when there is nothing else, else the message as JSON."""
    if isinstance(message.get("content"), str) and set(message) <= {"role", "content"}:
        return plain(message["content"], newlines=True)
    return _shown({key: value for key, value in message.items() if key != "role"})


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return plain(text, newlines=True)


def _spelled(call: CallRecord, tokenizer: ChatTokenizer) -> list[str]:
    ids = (*call.prompt_ids, *call.sampled_ids)
    return [tokenizer.token_bytes(token).decode("utf-8", "replace") for token in ids]


def _hide(block: Block, hidden: frozenset[int]) -> None:
    """Show those tokens of a block without their text."""
    if hidden:
        block.folds = [
            [replace(t, token_id=-1, text=HIDDEN) if t.position in hidden else t for t in fold]
            for fold in block.folds
        ]


def _fill(
    block: Block, place: Place, tokenizer: ChatTokenizer | None, choice: Choice, left: _Budget
) -> None:
    block.first = min(choice.first, block.total) if choice.call is not None else 0
    count = left.take(block.total - block.first)
    if count == 0:
        return
    end = block.first + count
    if block.part == "answer":
        tokens = list(sampled_tokens(place.call, block.first, end, tokenizer))
    else:
        authors = [Author.TEMPLATE] * block.total
        if tokenizer is not None:
            authors = prompt_authors(place.call, place.parent, place.cut, tokenizer)
        wanted = authors[block.first : end]
        tokens = list(prompt_tokens(place.call, place.cut + block.first, wanted, tokenizer))
    folds = range(0, len(tokens), TOKENS_A_FOLD)
    block.folds = [tokens[start : start + TOKENS_A_FOLD] for start in folds]
