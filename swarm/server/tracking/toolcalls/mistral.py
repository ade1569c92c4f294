"""Mistral's calls: text, then ``[TOOL_CALLS]`` with a JSON list, or (newer models) ``[TOOL_CALLS]name[ARGS]{...}`` repeated."""

from __future__ import annotations

import json
from typing import Any

from swarm.server.tracking.toolcalls.marked import overlap
from swarm.server.tracking.toolcalls.pieces import CallPiece, Piece, TextPiece
from swarm.server.tracking.toolcalls.values import call_of_value, calls_of_json

MARK, ARGS = "[TOOL_CALLS]", "[ARGS]"
_decoder = json.JSONDecoder()


class MistralCalls:
    """Text goes on until the mark; everything after it is held to the end, because the calls end the answer."""

    def __init__(self) -> None:
        self._held = ""
        self._calls: str | None = None

    def feed(self, text: str) -> list[Piece]:
        """Take more text."""
        if self._calls is not None:
            self._calls += text
            return []
        self._held += text
        before, mark, after = self._held.partition(MARK)
        if mark:
            self._held, self._calls = before[len(before.rstrip()) :], after
            return [TextPiece(sure)] if (sure := before.rstrip()) else []
        sure = self._held[: len(self._held) - overlap(self._held, MARK)].rstrip()
        self._held = self._held[len(sure) :]
        return [TextPiece(sure)] if sure else []

    def finish(self) -> list[Piece]:
        """Read the calls; when any of them does not parse, all of it is text."""
        if self._calls is None:
            return [TextPiece(self._held)] if self._held else []
        calls = _read(self._calls.strip())
        if calls is None:
            return [TextPiece(f"{self._held}{MARK}{self._calls}")]
        return list(calls)


def _read(text: str) -> list[CallPiece] | None:
    if text.startswith(("[{", "{", "[ ")):
        return calls_of_json(text)
    calls: list[CallPiece] = []
    for part in text.split(MARK):
        name, mark, arguments = part.partition(ARGS)
        value = _value(arguments.strip()) if mark else None
        call = (
            call_of_value({"name": name.strip(), "arguments": value}) if value is not None else None
        )
        if call is None:
            return None
        calls.append(call)
    return calls or None


def _value(text: str) -> Any:
    try:
        value, end = _decoder.raw_decode(text)
    except ValueError:
        return None
    return value if not text[end:].strip() else None
