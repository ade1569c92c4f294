"""One answer of the light chat path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swarm.triggers import Point, hit

MODEL_NAME = "policy"
"""What the light path sends as ``model``; the episode's key decides which weights answer."""


@dataclass(frozen=True, slots=True)
class ChatResult:
    """The first choice of a chat completion."""

    message: dict[str, Any]
    """The assistant message as the server returned it; append it to the history unchanged, so that its tokens are spliced."""
    finish_reason: str
    """``stop``, ``length`` or ``tool_calls``."""
    usage: dict[str, Any]
    raw: dict[str, Any]
    """The whole body, with whatever else the server says of the call."""

    @property
    def text(self) -> str:
        """The answer's text; empty when it is a tool call only."""
        return str(self.message.get("content") or "")

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The answer's tool calls in order; empty when there are none."""
        return list(self.message.get("tool_calls") or [])


def chat_payload(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    sampling: dict[str, Any],
) -> dict[str, Any]:
    """Body of ``/v1/chat/completions``; values of ``sampling`` that are None are left to the server."""
    payload: dict[str, Any] = {"model": MODEL_NAME, "messages": list(messages)}
    if tools:
        payload["tools"] = list(tools)
    payload.update({key: value for key, value in sampling.items() if value is not None})
    return payload


def read_chat(body: dict[str, Any]) -> ChatResult:
    """Take the first choice out of a completion body."""
    hit(Point.CLIENT_CHAT_ANSWERED)
    choice = body["choices"][0]
    return ChatResult(
        message=choice["message"],
        finish_reason=str(choice.get("finish_reason") or ""),
        usage=body.get("usage") or {},
        raw=body,
    )
