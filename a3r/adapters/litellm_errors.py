"""What an exception out of litellm means for the leader: wait, or call a person. Told by status and cause, not by class name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from a3r.core.errors import ModelRefused, ModelUnavailable

WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
"""And everything from 500."""
LEFT_OPEN = frozenset({408, 504, 524})
"""A gateway gave up; whether the provider did the work, and bills it, is not known."""
NEVER_REACHED = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError"}
)
NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
SECRET = re.compile(r"\b(sk|pk|bearer)([-_ ])[\w*.-]{8,}", re.IGNORECASE)
MAX_TEXT = 400
HINTS = {
    400: "The provider does not take the request; another model (A3R_LLM) may.",
    401: "Set the provider's key in the environment, 'a3r daemon stop', then resume the campaign.",
    402: "Add credit at the provider, then resume the campaign.",
    403: "The key may not use this model; set another key or another A3R_LLM, then resume the campaign.",
    404: "There is no such model at this address; set A3R_LLM or A3R_LLM_BASE_URL, then resume the campaign.",
}


def classified(
    error: Exception, model: str, now: datetime | None = None
) -> ModelUnavailable | ModelRefused:
    """The error as the leader knows it; ``details["maybe_billed"]`` says whether the call may cost something."""
    status, text = _status(error), _text(error)
    if status == 402 or (status in (400, 403, 429) and NO_CREDIT.search(text)):
        return ModelRefused(f"{model}: no credit is left: {text}", hint=HINTS[402], status=status)
    if status is None or not (status in WORTH_ANOTHER_TRY or status >= 500):
        hint = HINTS.get(status or 0, HINTS[400])
        return ModelRefused(f"{model} refuses: {text}", hint=hint, status=status)
    return ModelUnavailable(
        f"{model}: {_kind(error, status)}: {text}",
        hint="It is tried again by itself.",
        status=status,
        retry_after_s=retry_after_s(_headers(error), now or datetime.now(UTC)),
        maybe_billed=_maybe_billed(error, status),
    )


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the provider asks to wait (``retry-after-ms``, else ``retry-after`` as seconds or as a date); None: it does not say."""
    lowered = {key.lower(): value for key, value in headers.items()}
    try:
        if "retry-after-ms" in lowered:
            return max(0.0, float(lowered["retry-after-ms"]) / 1000)
        text = lowered.get("retry-after", "").strip()
        if re.fullmatch(r"[0-9.]+", text):
            return float(text)
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds()) if text else None
    except (ValueError, TypeError):
        return None


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _kind(error: Exception, status: int) -> str:
    names = set(_names(error))
    if status == 429:
        return "rate limited"
    if names & NEVER_REACHED:
        return "can not be reached"
    if "Timeout" in names or status in LEFT_OPEN:
        return "no answer in time"
    return f"not available (status {status})"


def _maybe_billed(error: Exception, status: int) -> bool:
    names = set(_names(error))
    if names & NEVER_REACHED:
        return False
    return "HTTPStatusError" not in names or status in LEFT_OPEN


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _names(error: BaseException) -> Iterator[str]:
    return (type(cause).__name__ for cause in _causes(error))


def _headers(error: Exception) -> Mapping[str, str]:
    for cause in _causes(error):
        headers: Any = getattr(getattr(cause, "response", None), "headers", None)
        if headers:
            return dict(headers)
    return {}


def _text(error: Exception) -> str:
    """What the provider said, on one line, without litellm's prefixes and without anything like a key."""
    text = " ".join(str(getattr(error, "message", "") or error).split())
    text = re.sub(r"^(litellm\.)?(\w+(Error|Exception|Timeout)(: | - ))+", "", text)
    return SECRET.sub(r"\1\2***", text)[:MAX_TEXT] or type(error).__name__
