"""Answers in Anthropic's words: the ``message`` object, and the pieces that a stream shares with it."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from swarm.protocol.states import FinishReason
from swarm.server.service.calls import Answer, ChatReply

STOP_REASONS = {
    FinishReason.STOP.value: "end_turn",
    FinishReason.LENGTH.value: "max_tokens",
    FinishReason.TOOL_CALLS.value: "tool_use",
}
"""Our word -> Anthropic's; a stop string has its own."""


def message_of(answer: Answer, model: str) -> dict[str, Any]:
    """Return the ``message`` object of a whole answer (the dialect has one choice)."""
    reply = answer.choices[0]
    return head(answer.response_id, model) | {
        "content": blocks_of(reply),
        "stop_reason": stop_reason(reply),
        "stop_sequence": stop_sequence(reply),
        "usage": usage(answer.prompt_tokens, answer.completion_tokens),
    }


def head(response_id: str, model: str) -> dict[str, Any]:
    """Return the fields of a message that are known before it is sampled."""
    return {"id": f"msg_{response_id}", "type": "message", "role": "assistant", "model": model}


def blocks_of(reply: ChatReply) -> list[dict[str, Any]]:
    """Return thinking, text and tool use, in this order; an answer of nothing at all is an empty list."""
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        thinking = {"type": "thinking", "thinking": reply.reasoning}
        blocks.append(thinking | {"signature": signature(reply.reasoning)})
    if text := reply.message.get("content"):
        blocks.append({"type": "text", "text": text})
    calls = reply.message.get("tool_calls") or []
    used = [(tool_use(call), orjson.loads(call["function"]["arguments"])) for call in calls]
    return [*blocks, *(block | {"input": arguments} for block, arguments in used)]


def tool_use(call: dict[str, Any]) -> dict[str, Any]:
    """Return the head of a ``tool_use`` block, its input still empty."""
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}}


def signature(thinking: str) -> str:
    """Return what stands for Anthropic's signature: SDKs require the field and send it back; here it proves nothing."""
    return hashlib.sha256(thinking.encode()).hexdigest()[:32]


def stop_reason(reply: ChatReply) -> str:
    """Return Anthropic's word for how the answer ended."""
    if isinstance(reply.stop_reason, str):
        return "stop_sequence"
    return STOP_REASONS.get(reply.finish_reason, "end_turn")


def stop_sequence(reply: ChatReply) -> str | None:
    """Return the stop string that ended the answer, if one did."""
    return reply.stop_reason if isinstance(reply.stop_reason, str) else None


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the ``usage`` object; this server bills no cache, so its two counts are 0."""
    return {
        "input_tokens": prompt_tokens,
        "output_tokens": completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
