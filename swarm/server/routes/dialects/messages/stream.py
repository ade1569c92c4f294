"""A streamed answer in Anthropic's events: message_start, then blocks one after the other, then message_delta and message_stop.

Each block is opened by content_block_start, grows by content_block_delta and is closed by content_block_stop; blocks never
overlap and their indices ascend. (Source: Anthropic, "Streaming Messages".)
"""

from __future__ import annotations

from typing import Any

import orjson

from swarm.server.routes.dialects.messages.reply import (
    head,
    signature,
    stop_reason,
    stop_sequence,
    tool_use,
    usage,
)
from swarm.server.service.calls import ChatDelta, ChatReply

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def event(kind: str, **data: Any) -> bytes:
    """Return one event; its type is named twice, as the dialect wants it."""
    body = orjson.dumps({"type": kind} | data)
    return f"event: {kind}\ndata: ".encode() + body + b"\n\n"


class MessageStream:
    """Writes the events of one answer; feed it every delta in order. What it wrote adds up to ``message_of``."""

    def __init__(self, response_id: str, model: str) -> None:
        self._response_id, self._model = response_id, model
        self._started = False
        self._index = -1
        self._open = ""
        """Type of the block that is open; empty = none."""
        self._thought = ""
        self._said = ""
        self._calls = 0

    def write(self, delta: ChatDelta) -> bytes:
        """Return the events of one delta; the last one ends the message."""
        parts = [] if self._started else [self._start(delta)]
        parts += self._reasoning(delta.reasoning)
        parts += self._text(delta.text)
        parts += self._tools(delta.tool_calls or [])
        if delta.final is not None:
            parts += self._end(delta.final)
        return b"".join(parts)

    def _start(self, delta: ChatDelta) -> bytes:
        self._started = True
        message = head(delta.response_id or self._response_id, self._model) | {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage(delta.prompt_tokens, 0),
        }
        return event("message_start", message=message) + PING

    def _reasoning(self, text: str) -> list[bytes]:
        if not text:
            return []
        parts = self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        self._thought += text
        return [*parts, self._delta({"type": "thinking_delta", "thinking": text})]

    def _text(self, text: str) -> list[bytes]:
        if not text:
            return []
        parts = self._enter("text", {"type": "text", "text": ""})
        self._said += text
        return [*parts, self._delta({"type": "text_delta", "text": text})]

    def _tools(self, calls: list[dict[str, Any]]) -> list[bytes]:
        parts: list[bytes] = []
        for call in calls:
            self._calls += 1
            parts += self._close()
            parts += self._enter("tool_use", tool_use(call))
            arguments = call["function"]["arguments"]
            parts.append(self._delta({"type": "input_json_delta", "partial_json": arguments}))
            parts += self._close()
        return parts

    def _end(self, reply: ChatReply) -> list[bytes]:
        """Write what no delta said yet, close the open block, and say how it ended."""
        text = reply.message.get("content") or ""
        parts = self._reasoning((reply.reasoning or "")[len(self._thought) :])
        if text.startswith(self._said):
            parts += self._text(text[len(self._said) :])
        parts += self._tools((reply.message.get("tool_calls") or [])[self._calls :])
        parts += self._close()
        delta = {"stop_reason": stop_reason(reply), "stop_sequence": stop_sequence(reply)}
        counts = usage(reply.prompt_tokens, reply.completion_tokens)
        return [*parts, event("message_delta", delta=delta, usage=counts), event("message_stop")]

    def _enter(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        """Open a block of that type unless one is open."""
        if self._open == kind:
            return []
        parts = self._close()
        self._index, self._open = self._index + 1, kind
        return [*parts, event("content_block_start", index=self._index, content_block=block)]

    def _close(self) -> list[bytes]:
        if not self._open:
            return []
        parts: list[bytes] = []
        if self._open == "thinking":
            signed = {"type": "signature_delta", "signature": signature(self._thought)}
            parts.append(self._delta(signed))
        self._open = ""
        return [*parts, event("content_block_stop", index=self._index)]

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return event("content_block_delta", index=self._index, delta=delta)
