"""A whole answer, split into what is said and what is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from swarm.server.tracking.toolcalls.families import ToolParser
from swarm.server.tracking.toolcalls.pieces import CallPiece, TextPiece


@dataclass(frozen=True)
class ParsedReply:
    """An answer split into what is said and what is called."""

    content: str | None
    """None when there are calls and no text beside them."""
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """OpenAI's shape: id, type, function {name, arguments (JSON text)}."""

    def message(self) -> dict[str, Any]:
        """Return the assistant message: ``tool_calls`` is present only when there are any."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


def parse_reply(
    parser: ToolParser, text: str, tools: list[dict[str, Any]], *, call_id: str
) -> ParsedReply:
    """Split an answer. Without declared tools (or with ``tool_choice`` none: pass ``[]``) everything is text.

    Call ids are ``<call_id>-<n>``: choose ``call_id`` unique within the episode.
    """
    reader = parser(tools)
    pieces = [*reader.feed(text), *reader.finish()]
    said = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    found = [piece for piece in pieces if isinstance(piece, CallPiece)]
    calls = [wire_call(call, f"{call_id}-{n}") for n, call in enumerate(found)]
    return ParsedReply(content=said if said or not calls else None, tool_calls=calls)


def wire_call(call: CallPiece, call_id: str) -> dict[str, Any]:
    """Return a call in OpenAI's shape."""
    arguments = orjson.dumps(call.arguments).decode()
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
