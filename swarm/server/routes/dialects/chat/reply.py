"""Answers in OpenAI's words: the ``chat.completion`` object, and the pieces that a stream shares with it."""

from __future__ import annotations

import time
from typing import Any

from swarm.server.routes.dialects.chat.request import ChatBody
from swarm.server.service.calls import Answer, ChatReply


def completion(body: ChatBody, answer: Answer, model: str) -> dict[str, Any]:
    """Return the ``chat.completion`` object."""
    whole = head("chat.completion", answer.response_id, model) | {
        "choices": [_choice(body, reply) for reply in answer.choices],
        "usage": usage(answer.prompt_tokens, answer.completion_tokens, answer.reasoning_tokens),
    }
    if body.return_token_ids:
        whole["prompt_token_ids"] = answer.choices[0].prompt_ids
    return whole


def head(kind: str, response_id: str, model: str) -> dict[str, Any]:
    """Return the fields that every object of an answer has."""
    return {
        "id": chat_id(response_id),
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def chat_id(response_id: str) -> str:
    """Return the id of an answer as this dialect spells it."""
    return f"chatcmpl-{response_id}"


def usage(prompt_tokens: int, completion_tokens: int, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Return the ``usage`` object (counts of tokens); those of thinking are told apart when there are any."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if reasoning_tokens:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return counts


def _choice(body: ChatBody, reply: ChatReply) -> dict[str, Any]:
    message = {"refusal": None, **reply.message}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    choice: dict[str, Any] = {
        "index": reply.index,
        "message": message,
        "finish_reason": reply.finish_reason,
        "stop_reason": reply.stop_reason,
        "logprobs": None,
    }
    if body.call.logprobs:
        choice["logprobs"] = logprobs(reply.token_texts, reply.logprobs, reply.top)
    if body.return_token_ids:
        choice["token_ids"] = reply.token_ids
    return choice


def logprobs(
    texts: list[bytes], values: list[float], top: list[list[tuple[bytes, float]]]
) -> dict[str, Any]:
    """Return the ``logprobs`` object: one entry a sampled token, its end token included."""
    tops = top or [[] for _ in texts]
    content = [
        token(raw, value) | {"top_logprobs": [token(*item) for item in most]}
        for raw, value, most in zip(texts, values, tops, strict=True)
    ]
    return {"content": content, "refusal": None}


def token(raw: bytes, value: float) -> dict[str, Any]:
    """Return one token; half a character shows as U+FFFD in ``token`` and whole in ``bytes``."""
    return {"token": raw.decode("utf-8", "replace"), "logprob": value, "bytes": list(raw)}
