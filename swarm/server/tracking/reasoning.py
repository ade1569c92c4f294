"""Thinking inside generated text, told apart from the answer while the text is still growing.

``<think>`` ... ``</think>`` at the beginning of an answer is thinking; some templates write the opening mark themselves, and the
answer then begins inside. Anywhere else the marks are text: an answer may speak about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from swarm.server.tracking.toolcalls.marked import overlap


class Said(NamedTuple):
    """New text of an answer; either may be empty."""

    reasoning: str
    text: str


NOTHING = Said("", "")


@dataclass(frozen=True)
class ThinkMarks:
    """How a model marks its thinking."""

    opening: str = "<think>"
    closing: str = "</think>"

    def opened_by(self, prompt: str) -> bool:
        """Whether a rendered prompt ends with the opening mark, so that the answer begins inside."""
        return prompt.rstrip().endswith(self.opening)

    def left_open(self, begun: str) -> bool:
        """Whether an answer that goes on from the text ``begun`` goes on inside its thinking."""
        opened = begun.lstrip().startswith(self.opening)
        return opened and self.closing not in begun

    def tokens(self, pieces: Sequence[bytes], *, inside: bool) -> int:
        """Count the tokens (their bytes) of an answer that are thinking, its marks included; ``inside`` as in ``ReasoningSplit``."""
        text = b"".join(pieces)
        if not inside and not text.lstrip().startswith(self.opening.encode()):
            return 0
        end = text.find(self.closing.encode())
        if end < 0:
            return len(pieces)
        end, length = end + len(self.closing.encode()), 0
        for count, piece in enumerate(pieces):
            if length >= end:
                return count
            length += len(piece)
        return len(pieces)


class ReasoningSplit:
    """Reads one answer. The sum of what it gives out does not depend on how the text was cut.

    Line breaks right after the opening mark, right before the closing mark and right after it are layout and left out, as the
    templates of Qwen 3 and DeepSeek write them again. Thinking that is never closed (a truncated answer) is thinking to the end.
    """

    def __init__(self, marks: ThinkMarks, *, inside: bool) -> None:
        """``inside``: the prompt has opened the thinking already."""
        self.marks, self.inside = marks, inside
        self._state = "thinking" if inside else "start"
        self._held = ""
        self._fresh = inside
        """Nothing but line breaks came since the last mark."""
        self.closed = False
        """Whether thinking came to its end."""

    def feed(self, text: str) -> Said:
        """Take more text; return what is certain."""
        self._held += text
        reasoning, said = "", ""
        if self._state == "start":
            self._look_for_opening()
        if self._state == "thinking":
            reasoning = self._think()
        if self._state == "answer":
            said = self._answer()
        return Said(reasoning, said)

    def finish(self) -> Said:
        """Give out what is held."""
        held, self._held = self._held, ""
        if self._state == "thinking":
            return Said(held.lstrip("\n") if self._fresh else held, "")
        return Said("", held.lstrip("\n") if self._fresh else held)

    def _look_for_opening(self) -> None:
        opening, start = self.marks.opening, self._held.lstrip()
        if start.startswith(opening):
            self._held, self._state, self._fresh = start[len(opening) :], "thinking", True
        elif not opening.startswith(start):
            self._state = "answer"

    def _think(self) -> str:
        before, mark, after = self._held.partition(self.marks.closing)
        if mark:
            thought = before.rstrip("\n")
            if self._fresh:
                thought = thought.lstrip("\n")
            self._held, self._state, self._fresh, self.closed = after, "answer", True, True
            return thought
        keep = overlap(self._held, self.marks.closing)
        sure = self._held[: len(self._held) - keep].rstrip("\n")
        self._held = self._held[len(sure) :]
        return self._unfreshened(sure)

    def _answer(self) -> str:
        text, self._held = self._held, ""
        return self._unfreshened(text)

    def _unfreshened(self, text: str) -> str:
        if self._fresh:
            text = text.lstrip("\n")
            self._fresh = not text
        return text
