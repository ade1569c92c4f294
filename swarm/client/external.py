"""External models: roles of an episode that somebody else serves. Never trained, retried, their cost booked.

Here are the data and the decisions (is this an outage? what did it cost?); ``external_routes`` sends the calls.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from swarm.client.errors import ClientUsageError, ExternalModelDown
from swarm.protocol.errors import AuthError, ServerUnreachable, SwarmError

PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 524, 529})
"""HTTP answers after which the same request may succeed."""
OUT_OF_MONEY = 402
PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens, as the model's provider lists them."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None
    """Of prompt tokens that the provider read from its cache; None = as ``input_usd``."""

    def cost_usd(self, prompt: int, completion: int, cached: int = 0) -> float:
        """US dollars for one call; ``cached`` is the part of ``prompt`` that came from the provider's cache."""
        cached_usd = self.input_usd if self.cached_input_usd is None else self.cached_input_usd
        fresh = max(0, prompt - cached)
        total = fresh * self.input_usd + cached * cached_usd + completion * self.output_usd
        return total / PER_PRICE


@dataclass(frozen=True, slots=True)
class ExternalModel:
    """A model behind an OpenAI-compatible address."""

    base_url: str
    """As its provider gives it, usually ending with ``/v1``."""
    model: str
    """What requests send as ``model``."""
    secret: str = ""
    """NAME of the secret that holds the API key, never the key; empty = the address wants none."""
    price: Price | None = None
    """None = the cost is not known, and not booked as 0."""
    timeout_s: float = 120.0
    """Seconds for one try."""
    patience_s: float = 300.0
    """Seconds for all tries of one call; after that the model is down."""
    optional: bool = False
    """True: an agent may catch ``ExternalModelDown`` and still finish; False: an outage aborts the episode in any case."""

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientUsageError(
                f"The external model's address {self.base_url!r} is not a URL.",
                hint="Write it as its provider does, e.g. https://api.example.com/v1.",
            )
        if parts.username or parts.password:
            raise ClientUsageError(
                "The external model's address holds a user or a password.",
                hint="Put the key into a secret and give the secret's name.",
            )
        if self.timeout_s <= 0 or self.patience_s <= 0:
            raise ClientUsageError(
                f"timeout_s={self.timeout_s!r} and patience_s={self.patience_s!r} must be positive.",
                hint="Leave them out to take the defaults.",
            )

    def key(self, role: str, secrets: Mapping[str, str]) -> str:
        """The API key out of ``secrets`` (a script passes ``os.environ``); empty when the model wants none.

        Raises:
            ClientUsageError: there is no such secret, or it is empty.
        """
        if not self.secret:
            return ""
        found = secrets.get(self.secret, "").strip()
        if not found:
            raise ClientUsageError(
                f"The external model of role {role!r} needs the secret {self.secret!r}, which is not set.",
                hint=f"Set the environment variable {self.secret} and pass secrets=os.environ.",
            )
        return found


# --- what it costs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """What the calls to one external model used, or to several together."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """Of the calls whose cost is known."""
    unpriced: int = 0
    """Calls of unknown cost: no price was given, or the answer did not say what it used."""

    def __add__(self, other: Usage) -> Usage:
        """Sums."""
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost_usd + other.cost_usd,
            self.unpriced + other.unpriced,
        )

    def metrics(self) -> dict[str, float]:
        """Metrics for an episode's finish; nothing without a call, and no cost when no call's cost is known."""
        if not self.calls:
            return {}
        found = {
            "external_calls": float(self.calls),
            "external_prompt_tokens": float(self.prompt_tokens),
            "external_completion_tokens": float(self.completion_tokens),
        }
        if self.unpriced < self.calls:
            found["external_cost_usd"] = self.cost_usd
        if self.unpriced:
            found["external_calls_unpriced"] = float(self.unpriced)
        return found


def read_usage(model: ExternalModel, body: Mapping[str, Any]) -> Usage:
    """What one answer used, from its OpenAI ``usage``; an answer without it is a call of unknown cost."""
    usage = _mapping(body.get("usage"))
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return Usage(calls=1, unpriced=1)
    if model.price is None:
        return Usage(1, prompt, completion, unpriced=1)
    cached = _count(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(1, prompt, completion, model.price.cost_usd(prompt, completion, cached or 0))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


class Book:
    """What external models used in one episode, by role; what is booked here is booked in ``parent`` too. Thread-safe."""

    def __init__(self, parent: Book | None = None) -> None:
        """Start empty."""
        self._parent = parent
        self._lock = threading.Lock()
        self._by_role: dict[str, Usage] = {}
        self._down: dict[str, str] = {}

    def add(self, role: str, usage: Usage) -> None:
        """Book a call that was answered; the role is up again."""
        with self._lock:
            self._by_role[role] = self._by_role.get(role, Usage()) + usage
            self._down.pop(role, None)
        if self._parent is not None:
            self._parent.add(role, usage)

    def went_down(self, role: str, why: str) -> None:
        """Note that the last call of ``role`` was not answered."""
        with self._lock:
            self._down[role] = why
        if self._parent is not None:
            self._parent.went_down(role, why)

    def by_role(self) -> dict[str, Usage]:
        """A copy; roles that were never called are left out."""
        with self._lock:
            return dict(self._by_role)

    def down(self) -> dict[str, str]:
        """Roles whose last call was not answered, with why."""
        with self._lock:
            return dict(self._down)

    def total(self) -> Usage:
        """Of all roles."""
        return sum(self.by_role().values(), Usage())


# --- what is an outage -----------------------------------------------------------------------------------------


def down(role: str, model: ExternalModel, why: str) -> ExternalModelDown:
    """The error for an external model that does not answer."""
    return ExternalModelDown(
        f"The external model {model.model!r} of role {role!r} at {model.base_url!r} does not answer: {why}",
        hint="The episode is aborted and nobody's failure; the run goes on when the model is back.",
        role=role,
    )


def read_failure(role: str, model: ExternalModel, error: SwarmError) -> tuple[SwarmError, bool]:
    """What a failed try means: the error to raise, and whether to try again before raising it."""
    status = int(error.details.get("http_status", error.status))
    if isinstance(error, ServerUnreachable) or status in PASSING_STATUS:
        return down(role, model, str(error.details.get("why", error.message))), True
    if status == OUT_OF_MONEY:
        return down(role, model, f"it refuses to be paid later ({error.message})"), False
    if status in (AuthError.status, 403):
        named = f"secret {model.secret!r}" if model.secret else "no key"
        return AuthError(
            f"The external model of role {role!r} refuses {named}: {error.message}",
            hint="Give the name of a secret whose key may use this model.",
        ), False
    return error, False


def is_outage(error: BaseException, base_urls: Mapping[str, str]) -> bool:
    """Whether an agent failed because an external model was down: our own class, or an OpenAI SDK's error on its address.

    Args:
        error: what the agent raised; errors that it was raised from count too.
        base_urls: the external models' addresses by role.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ExternalModelDown) or _sdk_outage(cause, base_urls):
            return True
        cause = cause.__cause__
    return False


def _sdk_outage(error: BaseException, base_urls: Mapping[str, str]) -> bool:
    url = str(getattr(getattr(error, "request", None), "url", ""))
    if not any(url.startswith(base.rstrip("/") + "/") for base in base_urls.values()):
        return False
    status = getattr(error, "status_code", None)
    return status is None or status in PASSING_STATUS or status == OUT_OF_MONEY
