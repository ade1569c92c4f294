"""A streamed answer as ``chat.completion.chunk`` objects; the choices of ``n`` > 1 come interleaved, each in its own order."""

from __future__ import annotations

from typing import Any

import orjson

from swarm.server.routes.dialects.chat.reply import chat_id, head, logprobs, usage
from swarm.server.routes.dialects.chat.request import ChatBody
from swarm.server.service.calls import ChatDelta, ChatReply

DONE = b"data: [DONE]\n\n"


class _Choice:
    """What one choice has said so far."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls = 0
        self.tokens = 0
        """Whose log-probabilities were sent."""


class ChunkStream:
    """Writes the chunks of one answer; feed it every delta in order. What it wrote adds up to ``completion``."""

    def __init__(self, body: ChatBody, response_id: str, model: str) -> None:
        self._body = body
        self._head = head("chat.completion.chunk", response_id, model)
        self._choices: dict[int, _Choice] = {}
        self._ended = 0
        self._completion_tokens = 0
        self._reasoning_tokens = 0

    def write(self, delta: ChatDelta) -> bytes:
        """Return the events of one delta; the last delta of the last choice ends the stream."""
        chunks: list[dict[str, Any]] = []
        choice = self._choices.get(delta.index)
        if choice is None:
            if delta.response_id:
                self._head["id"] = chat_id(delta.response_id)
            choice = self._choices[delta.index] = _Choice()
            chunks.append(self._chunk(delta.index, {"role": "assistant", "content": ""}))
        chunks += self._pieces(delta, choice)
        end = b""
        if delta.final is not None:
            chunks += self._rest(delta.final, choice)
            end = self._end(delta.final)
        return b"".join(map(_block, chunks)) + end

    def _pieces(self, delta: ChatDelta, choice: _Choice) -> list[dict[str, Any]]:
        """What the delta adds; its tokens go with the first thing that it adds, or alone."""
        parts: list[dict[str, Any]] = []
        if delta.reasoning:
            choice.reasoning += delta.reasoning
            parts.append({"reasoning_content": delta.reasoning})
        if delta.text:
            choice.text += delta.text
            parts.append({"content": delta.text})
        parts += [self._call(call, choice) for call in delta.tool_calls or []]
        wants_tokens = self._body.call.logprobs or self._body.return_token_ids
        if not parts and delta.token_ids and wants_tokens:
            parts.append({})
        chunks = [self._chunk(delta.index, part) for part in parts]
        if chunks and delta.token_ids:
            self._add_tokens(chunks[0]["choices"][0], delta)
            choice.tokens += len(delta.token_ids)
        return chunks

    def _add_tokens(self, choice: dict[str, Any], delta: ChatDelta) -> None:
        if self._body.call.logprobs:
            choice["logprobs"] = logprobs(delta.token_texts, delta.logprobs, delta.top)
        if self._body.return_token_ids:
            choice["token_ids"] = delta.token_ids

    def _rest(self, reply: ChatReply, choice: _Choice) -> list[dict[str, Any]]:
        """What of the whole message no delta said, and the chunk with the finish reason."""
        text, thought = reply.message.get("content") or "", reply.reasoning or ""
        parts: list[dict[str, Any]] = []
        if thought[len(choice.reasoning) :]:
            parts.append({"reasoning_content": thought[len(choice.reasoning) :]})
        if text.startswith(choice.text) and text[len(choice.text) :]:
            parts.append({"content": text[len(choice.text) :]})
        calls = (reply.message.get("tool_calls") or [])[choice.calls :]
        parts += [self._call(call, choice) for call in calls]
        return [*(self._chunk(reply.index, part) for part in parts), self._finish(reply, choice)]

    def _finish(self, reply: ChatReply, choice: _Choice) -> dict[str, Any]:
        chunk = self._chunk(reply.index, {}, finish_reason=reply.finish_reason)
        ending = chunk["choices"][0]
        ending["stop_reason"] = reply.stop_reason
        # What the headers of a whole answer say; those of a stream are gone by now.
        chunk["swarm"] = {"policy_version": reply.policy_version, "applied": reply.applied}
        unsent = reply.token_ids[choice.tokens :]
        if unsent and self._body.call.logprobs:
            since = slice(choice.tokens, None)
            ending["logprobs"] = logprobs(
                reply.token_texts[since], reply.logprobs[since], reply.top[since]
            )
        if self._body.return_token_ids:
            ending["token_ids"] = unsent
            chunk["prompt_token_ids"] = reply.prompt_ids
        return chunk

    def _end(self, reply: ChatReply) -> bytes:
        self._ended += 1
        self._completion_tokens += reply.completion_tokens
        self._reasoning_tokens += reply.reasoning_tokens
        if self._ended < self._body.call.n:
            return b""
        if not self._body.include_usage:
            return DONE
        counts = usage(reply.prompt_tokens, self._completion_tokens, self._reasoning_tokens)
        return _block(self._head | {"choices": [], "usage": counts}) + DONE

    def _call(self, call: dict[str, Any], choice: _Choice) -> dict[str, Any]:
        index, choice.calls = choice.calls, choice.calls + 1
        return {"tool_calls": [{**call, "index": index}]}

    def _chunk(
        self, index: int, delta: dict[str, Any], *, finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        chunk = self._head | {"choices": [choice]}
        return chunk | {"usage": None} if self._body.include_usage else chunk


def _block(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
