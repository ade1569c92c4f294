"""What the leader says to a language model and hears from it, and the port behind which the model is."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """A frozen value; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Part):
    """A tool that the model wants used."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: hopefully JSON."""


class ModelMessage(Part):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """Of a ``tool`` message: the call that it answers."""


class ToolSpec(Part):
    """A tool that the model may use."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""


class ModelRequest(Part):
    """One call."""

    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    json_schema: dict[str, Any] | None = None
    """Asked of providers that can enforce it; the reply is validated either way."""
    max_tokens: int = Field(default=4096, ge=1)
    """Completion tokens at most: what the budget reserves."""
    temperature: float | None = None


class ModelReply(Part):
    """What came back."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    """``stop``, ``length``, ``tool_calls``, or what the provider says."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str = ""
    """The model that answered: another one than asked for when a fallback did."""
    cost_usd: float | None = None
    """What it cost, where the adapter knows better than ``price()`` (a fallback has a price of its own)."""


class Price(Part):
    """USD a token."""

    prompt_usd: float = Field(ge=0)
    completion_usd: float = Field(ge=0)


class Spent(Part):
    """What calls took, those in flight at their full reserve."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    """Calls that were, or may have been, billed."""

    def plus(self, other: Spent) -> Spent:
        """The sum of both."""
        return Spent(
            usd=self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
        )


class LanguageModel(Protocol):
    """A model behind a provider. ``a3r.adapters.litellm_model`` is the real one."""

    @property
    def name(self) -> str:
        """``provider/model``."""
        ...

    def price(self) -> Price | None:
        """What a token costs; None when nobody knows."""
        ...

    def count_tokens(self, request: ModelRequest) -> int:
        """Prompt tokens of the request, never less than what will be billed as far as that can be known."""
        ...

    def complete(self, request: ModelRequest) -> ModelReply:
        """Call the model once. Does not retry.

        Raises:
            ModelUnavailable: worth another try later.
            ModelRefused: a person must act.
        """
        ...
