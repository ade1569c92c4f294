"""Replies of the service written in OpenAI's words: one ``chat.completion`` object, or the chunks of a stream.

Both forms are made from the same ``ChatReply``: a stream ends by sending whatever of it the pieces before did not say, so the
accumulated message, the finish reason and the usage are those of the whole answer.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from swarm.server.routes.chat_request import ChatBody
from swarm.server.service.inference import ChatDelta, ChatReply


def completion(body: ChatBody, reply: ChatReply, model: str) -> dict[str, Any]:
    """Return the ``chat.completion`` object for ``reply``."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"refusal": None, **reply.message},
        "finish_reason": reply.finish_reason,
        "logprobs": logprobs_of(reply) if body.call.logprobs else None,
    }
    whole = _head("chat.completion", model) | {"choices": [choice], "usage": usage_of(reply)}
    if body.return_token_ids:
        choice["token_ids"] = reply.token_ids
        whole["prompt_token_ids"] = reply.prompt_ids
    return whole


def usage_of(reply: ChatReply) -> dict[str, Any]:
    """Return OpenAI's ``usage`` object (counts of tokens)."""
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


def logprobs_of(reply: ChatReply) -> dict[str, Any]:
    """Return OpenAI's ``logprobs`` object: one entry a sampled token, its end token included."""
    tops = reply.top or [[] for _ in reply.token_texts]
    entries = zip(reply.token_texts, reply.logprobs, tops, strict=True)
    content = [
        _token(raw, lp) | {"top_logprobs": [_token(*item) for item in top]}
        for raw, lp, top in entries
    ]
    return {"content": content, "refusal": None}


def _token(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}


def _head(kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


class ChunkWriter:
    """Chunks of one stream: ``first``, then one a piece, then those of ``last``."""

    def __init__(self, body: ChatBody, model: str) -> None:
        self._body = body
        self._head = _head("chat.completion.chunk", model)
        self._text = ""
        self._tool_calls = 0

    def first(self) -> dict[str, Any]:
        """Return the chunk that names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: ChatDelta) -> list[dict[str, Any]]:
        """Return the chunks for what ``delta`` adds (not for its final reply)."""
        chunks: list[dict[str, Any]] = []
        if delta.text:
            self._text += delta.text
            chunks.append(self._chunk({"content": delta.text}))
        chunks.extend(self._tool_call(call) for call in delta.tool_calls or [])
        return chunks

    def last(self, reply: ChatReply) -> list[dict[str, Any]]:
        """Return the rest of the message, the chunk with the finish reason, and the usage chunk when it was asked for."""
        text = reply.message.get("content") or ""
        rest = text[len(self._text) :] if text.startswith(self._text) else ""
        chunks = [self._chunk({"content": rest})] if rest else []
        calls = reply.message.get("tool_calls") or []
        chunks.extend(self._tool_call(call) for call in calls[self._tool_calls :])
        chunks.append(self._finish(reply))
        if self._body.include_usage:
            chunks.append(self._head | {"choices": [], "usage": usage_of(reply)})
        return chunks

    def _finish(self, reply: ChatReply) -> dict[str, Any]:
        chunk = self._chunk({}, finish_reason=reply.finish_reason)
        # What the headers of a whole answer say; those of a stream are gone by now.
        chunk["swarm"] = {"policy_version": reply.policy_version, "applied": reply.applied}
        if self._body.call.logprobs:
            chunk["choices"][0]["logprobs"] = logprobs_of(reply)
        if self._body.return_token_ids:
            chunk["choices"][0]["token_ids"] = reply.token_ids
            chunk["prompt_token_ids"] = reply.prompt_ids
        return chunk

    def _tool_call(self, call: dict[str, Any]) -> dict[str, Any]:
        index, self._tool_calls = self._tool_calls, self._tool_calls + 1
        return self._chunk({"tool_calls": [{**call, "index": index}]})

    def _chunk(self, delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        chunk = self._head | {"choices": [choice]}
        return chunk | {"usage": None} if self._body.include_usage else chunk
