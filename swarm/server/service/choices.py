"""One choice of an answer on its way from ids to a message: text, thinking and tool calls told apart while it grows.

The whole answer goes through the same steps as a streamed one, in one piece: both give the same message by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from swarm.protocol.states import FinishReason
from swarm.server.service.calls import ChatDelta
from swarm.server.service.pieces import Pieces, cut_at_stop
from swarm.server.tracking.reasoning import ReasoningSplit, Said
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls import CallPiece, Parser, Piece, TextPiece, wire_call


class ChoiceText:
    """Reads one choice. Feed it all ids so far, as often as you like, then finish it once."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        parser: Parser,
        *,
        stops: list[str],
        thinking: ReasoningSplit | None,
        call_id: Callable[[int], str],
        most_calls: int | None = None,
        stop_ids: Sequence[int] = (),
    ) -> None:
        """``call_id``: the id of the n-th call. ``stop_ids``: tokens besides the model's own end that end an answer and are no text of it. ``thinking`` None: the model's thinking is not told apart. ``most_calls`` 1: only the first call counts."""
        self._tokenizer, self._parser, self._stops = tokenizer, parser, stops
        self._pieces = Pieces(tokenizer, stops, whole=False)
        self._thinking = thinking
        self._call_id, self._most_calls = call_id, most_calls
        self._stop_ids = frozenset(stop_ids)
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._ends_with_call = False

    def feed(self, ids: list[int]) -> ChatDelta:
        """Take all ids so far; return what is new and certain (it may be empty)."""
        text = self._pieces.feed(self._visible(ids))
        return self._take(text) if text else ChatDelta()

    def finish(self, ids: list[int]) -> ChatDelta:
        """Take the last ids; return the rest."""
        whole = cut_at_stop(self._tokenizer.answer_text(self._visible(ids)), self._stops)
        delta = self._take(self._pieces.rest(whole))
        if self._thinking is not None:
            self._add(delta, self._thinking.finish())
        self._add_pieces(delta, self._parser.finish())
        return delta

    def stopped_by(self, ids: list[int]) -> str | int | None:
        """Return the stop token, or the stop string that comes first in the answer; None when it ended otherwise."""
        if ids and ids[-1] in self._stop_ids:
            return ids[-1]
        if not self._stops:
            return None
        text = self._tokenizer.answer_text(ids)
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    @property
    def reasoning(self) -> str | None:
        """The thinking so far; None when there is none."""
        return "".join(self._reasoning) or None

    def reasoning_tokens(self, ids: Sequence[int]) -> int:
        """Return how many of all sampled ``ids`` are thinking, its marks included; an end token is not."""
        if self._thinking is None or not self._reasoning:
            return 0
        last = len(ids) - 1
        ended = last >= 0 and ids[last] in self._tokenizer.eos_texts
        pieces = [self._tokenizer.token_bytes(i) for i in ids[: last if ended else None]]
        return self._thinking.marks.tokens(pieces, inside=self._thinking.inside)

    def message(self) -> dict[str, Any]:
        """Return the assistant message: ``tool_calls`` and ``reasoning_content`` only when there are any."""
        text = "".join(self._texts)
        content = text if text or not self._calls else None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return message

    def finish_reason(self, sampled: str) -> str:
        """Return how the answer ended: ``tool_calls`` when it ended with a call, else as it was sampled."""
        cut = sampled == FinishReason.LENGTH and not self._ends_with_call
        if self._calls and not cut and sampled != FinishReason.ABORT:
            return FinishReason.TOOL_CALLS.value
        return sampled

    def _visible(self, ids: list[int]) -> list[int]:
        return ids[:-1] if ids and ids[-1] in self._stop_ids else ids

    def _take(self, text: str) -> ChatDelta:
        delta = ChatDelta()
        if self._thinking is None:
            self._add_pieces(delta, self._parser.feed(text))
        else:
            self._add(delta, self._thinking.feed(text))
        return delta

    def _add(self, delta: ChatDelta, said: Said) -> None:
        if said.reasoning:
            self._reasoning.append(said.reasoning)
            delta.reasoning += said.reasoning
        if said.text:
            self._add_pieces(delta, self._parser.feed(said.text))

    def _add_pieces(self, delta: ChatDelta, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, TextPiece):
                self._texts.append(piece.text)
                delta.text += piece.text
                self._ends_with_call = False
            else:
                self._add_call(delta, piece)

    def _add_call(self, delta: ChatDelta, piece: CallPiece) -> None:
        self._ends_with_call = True
        if self._most_calls is not None and len(self._calls) >= self._most_calls:
            return
        call = wire_call(piece, self._call_id(len(self._calls)))
        self._calls.append(call)
        delta.tool_calls = [*(delta.tool_calls or []), call]
