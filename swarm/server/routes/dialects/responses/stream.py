"""A streamed response in the dialect's events, numbered from 0, in the documented order.

created, in_progress, then item by item: output_item.added, (content_part.added, deltas, done, content_part.done |
function_call_arguments.delta, .done), output_item.done; at the end completed or incomplete, with the whole response.
"""

from __future__ import annotations

from typing import Any

import orjson

from swarm.protocol.errors import SwarmError
from swarm.server.routes.dialects.responses.reply import (
    finished,
    head,
    message_item,
    output_of,
    reasoning_item,
    text_part,
)
from swarm.server.routes.dialects.responses.request import ResponsesBody
from swarm.server.service.calls import ChatDelta, ChatReply


class ResponseStream:
    """Writes the events of one answer; feed it every delta in order. ``response`` is the whole object after the last one."""

    def __init__(self, body: ResponsesBody, response_id: str, model: str) -> None:
        self._body, self._id = body, response_id
        self.response = head(body, response_id, model)
        self._number = -1
        self._index = -1
        """Of the output item written last."""
        self._open = ""
        """``reasoning`` or ``message``; empty = no item is open."""
        self._text = ""
        """Of the open item."""
        self._thought = ""
        self._said = ""
        self._calls = 0

    def write(self, delta: ChatDelta) -> bytes:
        """Return the events of one delta; the last one completes the response."""
        parts: list[bytes] = [] if self._number >= 0 else self._start(delta.response_id)
        parts += self._grow("reasoning", delta.reasoning)
        parts += self._grow("message", delta.text)
        parts += self._function_calls(delta.tool_calls or [])
        if delta.final is not None:
            parts += self._end(delta.final)
        return b"".join(parts)

    def failed(self, error: SwarmError) -> bytes:
        """Return the event that ends a stream that failed after it had begun."""
        failure = {"code": "server_error", "message": error.message}
        self.response |= {"status": "failed", "error": failure}
        return self._event("response.failed", response=self.response)

    def _start(self, response_id: str) -> list[bytes]:
        if response_id:
            self._id = response_id
            self.response["id"] = f"resp_{response_id}"
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=self.response) for kind in kinds]

    def _grow(self, kind: str, text: str) -> list[bytes]:
        """Add text to the item of that kind, opened when it is not the open one."""
        if not text:
            return []
        parts = [] if self._open == kind else [*self._close(), *self._enter(kind)]
        self._text += text
        if kind == "reasoning":
            self._thought += text
            return [*parts, self._part_event("response.reasoning_text.delta", delta=text)]
        self._said += text
        return [*parts, self._part_event("response.output_text.delta", delta=text, logprobs=[])]

    def _enter(self, kind: str) -> list[bytes]:
        self._index, self._open, self._text = self._index + 1, kind, ""
        if kind == "reasoning":
            item = reasoning_item(f"rs_{self._id}", "", "in_progress")
            part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        else:
            item, part = message_item(f"msg_{self._id}", [], "in_progress"), text_part("")
        added = self._event("response.output_item.added", output_index=self._index, item=item)
        return [added, self._part_event("response.content_part.added", part=part)]

    def _close(self) -> list[bytes]:
        """Close the open item; its text is complete."""
        if not self._open:
            return []
        kind, text, self._open = self._open, self._text, ""
        if kind == "reasoning":
            item = reasoning_item(f"rs_{self._id}", text, "completed")
            done = self._item_event(kind, "response.reasoning_text.done", text=text)
            part: dict[str, Any] = {"type": "reasoning_text", "text": text}
        else:
            part = text_part(text)
            item = message_item(f"msg_{self._id}", [part], "completed")
            done = self._item_event(kind, "response.output_text.done", text=text, logprobs=[])
        ended = self._item_event(kind, "response.content_part.done", part=part)
        over = self._event("response.output_item.done", output_index=self._index, item=item)
        return [done, ended, over]

    def _function_calls(self, calls: list[dict[str, Any]]) -> list[bytes]:
        parts: list[bytes] = []
        for call in calls:
            parts += self._close()
            self._calls += 1
            self._index += 1
            parts += self._function_call(self._body.tools.item(call, "completed"))
        return parts

    def _function_call(self, item: dict[str, Any]) -> list[bytes]:
        """Write one call; a custom tool's text is its ``input``, a function's is its ``arguments``."""
        custom = item["type"] == "custom_tool_call"
        key = "input" if custom else "arguments"
        kind = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        place = {"item_id": item["id"], "output_index": self._index}
        whole: dict[str, Any] = (
            {key: item[key]} if custom else {"name": item["name"], key: item[key]}
        )
        begun = item | {key: "", "status": "in_progress"}
        return [
            self._event("response.output_item.added", output_index=self._index, item=begun),
            self._event(f"{kind}.delta", **place, delta=item[key]),
            self._event(f"{kind}.done", **place, **whole),
            self._event("response.output_item.done", output_index=self._index, item=item),
        ]

    def _end(self, reply: ChatReply) -> list[bytes]:
        """Write what no delta said yet, close, and send the whole response."""
        text = reply.message.get("content") or ""
        parts = self._grow("reasoning", (reply.reasoning or "")[len(self._thought) :])
        if text.startswith(self._said):
            parts += self._grow("message", text[len(self._said) :])
        calls = (reply.message.get("tool_calls") or [])[self._calls :]
        if self._index < 0 and not calls:
            parts += self._enter("message")  # an answer of nothing is still a message
        parts += [*self._function_calls(calls), *self._close()]
        self.response |= finished(reply) | {"output": output_of(self._id, reply, self._body)}
        kind = f"response.{self.response['status']}"
        return [*parts, self._event(kind, response=self.response)]

    def _part_event(self, kind: str, **data: Any) -> bytes:
        return self._item_event(self._open, kind, **data)

    def _item_event(self, item: str, kind: str, **data: Any) -> bytes:
        prefix = "rs_" if item == "reasoning" else "msg_"
        place = {"item_id": f"{prefix}{self._id}", "output_index": self._index, "content_index": 0}
        return self._event(kind, **place, **data)

    def _event(self, kind: str, **data: Any) -> bytes:
        self._number += 1
        body = orjson.dumps({"type": kind, "sequence_number": self._number} | data)
        return f"event: {kind}\ndata: ".encode() + body + b"\n\n"
