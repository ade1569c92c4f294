"""A chat call and its answer, free of any dialect and of any engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ChatCall:
    """What an agent asked for, free of any dialect. None = not sent."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tool_choice: Any = None
    """None or ``"auto"``: answers may be tool calls when tools are declared; ``"none"``: never."""
    max_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] = field(default_factory=list[str])
    logprobs: bool = False
    top_logprobs: int = 0
    template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    requested: dict[str, Any] = field(default_factory=dict[str, Any])
    """Sampling values as sent, for the record."""
    seed: int | None = None
    """Mixed into the noise key when sent."""


@dataclass(slots=True)
class ChatReply:
    """The whole answer."""

    message: dict[str, Any]
    """``{"role": "assistant", "content": str | None}`` and ``tool_calls`` when there are any."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt_ids: list[int]
    token_ids: list[int]
    """Sampled ids, the end token included."""
    logprobs: list[float]
    token_texts: list[bytes]
    """One a token; empty unless ``logprobs`` was asked for."""
    top: list[list[tuple[bytes, float]]]
    """Per token, (bytes, logprob) of the most likely ones; empty unless asked for."""
    applied: dict[str, Any]
    """``temperature`` and ``max_tokens`` as they took effect."""
    call_index: int
    policy_version: int


@dataclass(slots=True)
class ChatDelta:
    """A piece of a streamed answer; the last one carries ``final``."""

    text: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    final: ChatReply | None = None
