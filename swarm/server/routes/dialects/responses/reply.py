"""Answers in the words of the Responses dialect: the ``response`` object and its output items."""

from __future__ import annotations

import time
from typing import Any

from swarm.protocol.states import FinishReason
from swarm.server.routes.dialects.responses.request import ResponsesBody
from swarm.server.service.calls import Answer, ChatReply


def response_of(body: ResponsesBody, answer: Answer, model: str) -> dict[str, Any]:
    """Return the ``response`` object of a whole answer (the dialect has one choice)."""
    reply = answer.choices[0]
    whole = head(body, answer.response_id, model)
    return whole | finished(reply) | {"output": output_of(answer.response_id, reply, body)}


def head(body: ResponsesBody, response_id: str, model: str) -> dict[str, Any]:
    """Return the object of a response that has just begun."""
    return {
        "id": f"resp_{response_id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "temperature": body.call.temperature,
        "top_p": body.call.sampling.top_p,
        "usage": None,
        **body.echo,
    }


def finished(reply: ChatReply) -> dict[str, Any]:
    """Return the fields that an answer's end decides."""
    cut = reply.finish_reason == FinishReason.LENGTH
    return {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "temperature": reply.applied.get("temperature"),
        "top_p": reply.applied.get("top_p", 1.0),
        "usage": usage_of(reply),
    }


def usage_of(reply: ChatReply) -> dict[str, Any]:
    """Return the ``usage`` object (counts of tokens)."""
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


def output_of(response_id: str, reply: ChatReply, body: ResponsesBody) -> list[dict[str, Any]]:
    """Return the items in the order in which a stream gives them out: thinking, text, calls."""
    status = "incomplete" if reply.finish_reason == FinishReason.LENGTH else "completed"
    text = reply.message.get("content") or ""
    calls = reply.message.get("tool_calls") or []
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        items.append(reasoning_item(f"rs_{response_id}", reply.reasoning, status))
    if text or not (calls or reply.reasoning):
        part = text_part(text) | {"logprobs": logprobs_of(reply) if body.call.logprobs else []}
        items.append(message_item(f"msg_{response_id}", [part], status))
    return [*items, *(body.tools.item(call, "completed") for call in calls)]


def reasoning_item(item_id: str, text: str, status: str) -> dict[str, Any]:
    """Return an item of thinking; nothing is summarised, the text itself is there."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def message_item(item_id: str, parts: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Return an item of text."""
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def text_part(text: str) -> dict[str, Any]:
    """Return a part of output text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def logprobs_of(reply: ChatReply) -> list[dict[str, Any]]:
    """Return one entry a sampled token, its end token included."""
    tops = reply.top or [[] for _ in reply.token_texts]
    return [
        token_of(raw, logprob) | {"top_logprobs": [token_of(*item) for item in top]}
        for raw, logprob, top in zip(reply.token_texts, reply.logprobs, tops, strict=True)
    ]


def token_of(raw: bytes, logprob: float) -> dict[str, Any]:
    """Return one token with its bytes."""
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": logprob}
