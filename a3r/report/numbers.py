"""How numbers are written: the only place that turns a number into text for a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from a3r.report.records import Scalar
from a3r.report.results import Bounds

UNKNOWN = "n/a"


def stable(value: Any) -> Any:
    """JSON with every float cut to ten significant digits: the last digits may depend on the version of scipy."""
    kind: object = value
    if isinstance(kind, float):
        return float(f"{kind:.10g}")
    if isinstance(kind, dict):
        return {k: stable(v) for k, v in value.items()}
    if isinstance(kind, list | tuple):
        return [stable(v) for v in value]
    return value


def plain(value: float | None, places: int = 3) -> str:
    """Fixed places; ``n/a`` for None; never ``-0.000``."""
    if value is None:
        return UNKNOWN
    text = f"{value:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float | None, places: int = 3) -> str:
    """Like ``plain`` with the sign always shown, except for zero."""
    if value is None or float(f"{value:.{places}f}") == 0:
        return plain(value, places)
    return f"{value:+.{places}f}"


def interval(found: Bounds | None) -> str:
    """``+0.120 [+0.080, +0.160]``; the bounds are ``n/a`` when n < 2."""
    if found is None:
        return UNKNOWN
    if found.low is None or found.high is None:
        return f"{signed(found.mean)} [n/a]"
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"


def p_value(p: float | None) -> str:
    """Four places; ``< 0.0001`` below that; ``n/a`` for None."""
    if p is None:
        return UNKNOWN
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def p_phrase(p: float | None) -> str:
    """``p = 0.0123`` or ``p < 0.0001``."""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def level_text(level: float) -> str:
    """A level without needless decimals, e.g. ``16`` or ``0.001``."""
    return f"{level:.12g}"


def scalar_text(value: Scalar) -> str:
    """A factor's value."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return level_text(value)
    return str(value)


def listed(words: Sequence[str]) -> str:
    """``8``, ``8 and 32``, ``8, 16 and 32``; empty for none."""
    *front, last = words or ("",)
    return f"{', '.join(front)} and {last}" if front else last


def percent(confidence: float) -> str:
    """``95 %``."""
    return f"{100 * confidence:g} %"


def utc(at: float | None) -> str:
    """``2026-01-31 12:00:00`` in UTC; ``n/a`` for None."""
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
