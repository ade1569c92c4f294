"""Answers in the words of the Completions dialect, whole and as a stream of ``text_completion`` objects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import orjson

from swarm.server.routes.dialects.completions.request import CompletionsBody
from swarm.server.service.calls import Answer, ChatDelta, ChatReply

DONE = b"data: [DONE]\n\n"


def completion(body: CompletionsBody, answers: Sequence[Answer], model: str) -> dict[str, Any]:
    """Return the ``text_completion`` object: the choices of each prompt, in the order of the prompts."""
    choices = [
        _choice(body, reply, at * body.n + reply.index)
        for at, answer in enumerate(answers)
        for reply in answer.choices
    ]
    counts = (sum(a.prompt_tokens for a in answers), sum(a.completion_tokens for a in answers))
    return head(answers[0].response_id, model) | {"choices": choices, "usage": usage(*counts)}


def head(response_id: str, model: str) -> dict[str, Any]:
    """Return the fields that every object of an answer has."""
    return {
        "id": f"cmpl-{response_id}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
    }


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the ``usage`` object (counts of tokens)."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def text_of(reply: ChatReply) -> str:
    """Return the text of a choice; this dialect knows no tool calls and no thinking apart."""
    return reply.message.get("content") or ""


def _choice(body: CompletionsBody, reply: ChatReply, index: int) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "text": reply.prompt_text + text_of(reply),
        "finish_reason": reply.finish_reason,
        "stop_reason": reply.stop_reason,
        "logprobs": None,
    }
    if body.logprobs is not None:
        choice["logprobs"] = logprobs(reply.token_texts, reply.logprobs, reply.top, 0)
    if body.return_token_ids:
        choice |= {"token_ids": reply.token_ids, "prompt_token_ids": reply.prompt_ids}
    return choice


def logprobs(
    texts: list[bytes],
    values: list[float],
    top: list[list[tuple[bytes, float]]],
    offset: int,
) -> dict[str, Any]:
    """Return this dialect's ``logprobs`` object; ``offset`` is the position of the first token in the text."""
    tokens = [raw.decode("utf-8", "replace") for raw in texts]
    offsets: list[int] = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    tops = [{raw.decode("utf-8", "replace"): value for raw, value in most} for most in top]
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": tops or [{} for _ in tokens],
        "text_offset": offsets,
    }


class CompletionStream:
    """Writes the events of one request with all its prompts; feed it every delta with the number of its prompt."""

    def __init__(self, body: CompletionsBody, response_id: str, model: str) -> None:
        self._body = body
        self._head = head(response_id, model)
        self._begun: set[int] = set()
        """Choices of which something came."""
        self._said: dict[int, str] = {}
        self._tokens: dict[int, int] = {}
        self._left = body.n * len(body.calls)
        self._prompt_tokens: dict[int, int] = {}
        self._completion_tokens = 0

    def write(self, prompt: int, delta: ChatDelta) -> bytes:
        """Return the events of one delta; the last delta of the last choice ends the stream."""
        index = prompt * self._body.n + delta.index
        blocks: list[bytes] = []
        if not self._begun and delta.response_id:
            self._head["id"] = f"cmpl-{delta.response_id}"
        if index not in self._begun and delta.prompt_text:
            blocks.append(self._block(index, delta.prompt_text, None, {}))
        self._begun.add(index)
        wants_tokens = self._body.logprobs is not None or self._body.return_token_ids
        if delta.text or (delta.token_ids and wants_tokens):
            blocks.append(self._piece(index, delta))
        if delta.final is not None:
            self._prompt_tokens[prompt] = delta.final.prompt_tokens
            blocks.append(self._last(index, delta.final))
        return b"".join(blocks)

    def _piece(self, index: int, delta: ChatDelta) -> bytes:
        said = self._said.get(index, "")
        self._said[index] = said + delta.text
        self._tokens[index] = self._tokens.get(index, 0) + len(delta.token_ids)
        more: dict[str, Any] = {}
        if self._body.logprobs is not None and delta.token_ids:
            more["logprobs"] = logprobs(delta.token_texts, delta.logprobs, delta.top, len(said))
        if self._body.return_token_ids:
            more["token_ids"] = delta.token_ids
        return self._block(index, delta.text, None, more)

    def _last(self, index: int, reply: ChatReply) -> bytes:
        said, text = self._said.get(index, ""), text_of(reply)
        rest = text[len(said) :] if text.startswith(said) else ""
        since = self._tokens.get(index, 0)
        more: dict[str, Any] = {"stop_reason": reply.stop_reason}
        if self._body.logprobs is not None and reply.token_ids[since:]:
            more["logprobs"] = logprobs(
                reply.token_texts[since:], reply.logprobs[since:], reply.top[since:], len(said)
            )
        if self._body.return_token_ids:
            more |= {"token_ids": reply.token_ids[since:], "prompt_token_ids": reply.prompt_ids}
        self._left -= 1
        self._completion_tokens += reply.completion_tokens
        return self._block(index, rest, reply.finish_reason, more) + self._end()

    def _end(self) -> bytes:
        if self._left:
            return b""
        if not self._body.include_usage:
            return DONE
        counts = usage(sum(self._prompt_tokens.values()), self._completion_tokens)
        return (
            b"data: " + orjson.dumps(self._head | {"choices": [], "usage": counts}) + b"\n\n" + DONE
        )

    def _block(self, index: int, text: str, finish: str | None, more: dict[str, Any]) -> bytes:
        choice = {"index": index, "text": text, "finish_reason": finish, "logprobs": None} | more
        return b"data: " + orjson.dumps(self._head | {"choices": [choice]}) + b"\n\n"
