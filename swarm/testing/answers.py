"""Answers of the service, and the ways in which they may come in pieces: what tests of dialects are fed with."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

from swarm.server.service.calls import Answer, ChatDelta, ChatReply

Cuts = Callable[[int], list[int]]
"""Length of a text -> ascending positions at which it is cut."""


def tool_call(n: int, name: str = "add", arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a tool call as replies carry it."""
    text = json.dumps(arguments if arguments is not None else {"a": n})
    function = {"name": name, "arguments": text}
    return {"id": f"call-0-{n}", "type": "function", "function": function}


def make_reply(
    text: str = "",
    *,
    reasoning: str | None = None,
    calls: list[dict[str, Any]] | None = None,
    **more: Any,
) -> ChatReply:
    """Return a reply of three tokens with that message; ``more`` are fields of ``ChatReply``."""
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    values: dict[str, Any] = {
        "message": message,
        "finish_reason": "tool_calls" if calls else "stop",
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "prompt_ids": [1, 2, 3],
        "token_ids": [4, 5, 6],
        "logprobs": [-0.5, -0.25, -1.0],
        "token_texts": [b"a", b"\xc3", b"\xa9"],
        "top": [],
        "applied": {"temperature": 1.0, "max_tokens": 16},
        "call_index": 0,
        "policy_version": 2,
        "reasoning": reasoning,
    }
    return ChatReply(**values | more)


def make_answer(*replies: ChatReply) -> Answer:
    """Return an answer of these choices."""
    tokens = sum(reply.completion_tokens for reply in replies)
    return Answer(list(replies), replies[0].prompt_tokens, tokens, response_id="ep-1.0")


def reply_variants() -> list[ChatReply]:
    """Return replies with and without text, thinking, calls, and cut by length."""
    texts, thoughts = ("", "hello", "héllo wörld"), (None, "hm", "let me\nsee")
    return [
        make_reply(
            text,
            reasoning=thought,
            calls=[tool_call(i) for i in range(n)],
            **({"finish_reason": "length"} if cut else {}),
        )
        for text, thought, n, cut in product(texts, thoughts, range(3), (False, True))
    ]


def in_pieces(whole: ChatReply, cuts: Cuts, *, rest_in_final: bool) -> list[ChatDelta]:
    """Return deltas that add up to ``whole``; with ``rest_in_final`` the end of its text and its calls come only with it."""
    known: dict[str, Any] = {"index": whole.index, "prompt_tokens": whole.prompt_tokens}
    parts: list[dict[str, Any]] = []
    for key, text in (
        ("reasoning", whole.reasoning or ""),
        ("text", whole.message["content"] or ""),
    ):
        edges = [0, *cuts(len(text))]
        if key == "reasoning" or not rest_in_final:
            edges.append(len(text))
        parts += [{key: text[a:b]} for a, b in pairwise(edges)]
    calls = None if rest_in_final else whole.message.get("tool_calls")
    parts.append({"tool_calls": calls, "final": whole})
    return [ChatDelta(**(known | part)) for part in parts]
