"""The text of an answer while it is still being sampled."""

from __future__ import annotations

from swarm.server.tracking.tokenizer import ChatTokenizer, TextStream


class Pieces:
    """Text of a growing answer that is certain to be part of it: no half characters, no beginning of a stop string."""

    def __init__(self, tokenizer: ChatTokenizer, stops: list[str], *, whole: bool) -> None:
        self._tokenizer = tokenizer
        self._stream: TextStream | None = None  # not made for an answer that comes in one piece
        self._stops = stops
        self._keep_back = max((len(s) for s in stops), default=1) - 1
        self._whole = whole
        self._seen = 0
        self._text = ""
        self._sent = 0

    def feed(self, ids: list[int]) -> str:
        """Take all ids so far; return the new text."""
        if self._stream is None:
            self._stream = self._tokenizer.stream()
        self._text += self._stream.push(ids[self._seen :])
        self._seen = len(ids)
        if self._whole:
            return ""
        return self._up_to(len(cut_at_stop(self._text, self._stops)) - self._keep_back)

    def rest(self, text: str) -> str:
        """Return what of the final ``text`` was not sent yet."""
        piece, self._sent = text[self._sent :], len(text)
        return piece

    def _up_to(self, end: int) -> str:
        if end <= self._sent:
            return ""
        piece, self._sent = self._text[self._sent : end], end
        return piece


def cut_at_stop(text: str, stops: list[str]) -> str:
    """Return ``text`` before the first stop string in it."""
    if not stops:
        return text
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return text[: min(ends)] if ends else text
