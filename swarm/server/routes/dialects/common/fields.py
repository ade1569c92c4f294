"""One JSON object of a request, read key by key with a type; what was never asked for is left over, to be listed in the trace."""

from __future__ import annotations

import math
from typing import Any, cast

from swarm.protocol.errors import RequestError, UnsupportedParameter

MAX_INTEGER = (1 << 63) - 1
SHOWN = 60
"""Characters of a wrong value that an error repeats."""


def shown(value: object) -> str:
    """Return ``repr(value)``, cut."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def wrong(where: str, value: object, wanted: str) -> RequestError:
    """Return the error for a value of the wrong type or range."""
    return RequestError(
        f"{where!r} must be {wanted}, not {type(value).__name__} {shown(value)}.",
        hint=f"Send {where!r} as {wanted}.",
        parameter=where,
    )


def unsupported(where: str, value: object, hint: str) -> UnsupportedParameter:
    """Return the error for a value that this server cannot honour."""
    return UnsupportedParameter(
        f"The parameter {where!r} with value {shown(value)} is not served.",
        hint=hint,
        parameter=where,
    )


class Fields:
    """An object's fields; null counts as not sent. Every getter raises ``RequestError`` that names the key."""

    def __init__(self, given: object, where: str = "") -> None:
        """``where`` is the path to the object, for errors; empty for the body itself."""
        if not isinstance(given, dict):
            raise wrong(where or "body", given, "an object")
        items = cast("dict[str, Any]", given).items()
        self._given: dict[str, Any] = {key: value for key, value in items if value is not None}
        self._where = f"{where}." if where else ""
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        """Whether the key was sent with a value."""
        return key in self._given

    def path(self, key: str) -> str:
        """Return the key as errors name it."""
        return f"{self._where}{key}"

    def get(self, key: str) -> Any:
        """Return the value as it came, None when not sent."""
        value = self._given.get(key)
        if value is not None:
            self._asked.add(key)
        return value

    def ignore(self, *keys: str) -> None:
        """Note keys that are known and change nothing here."""
        self._asked.update(keys)

    def sends(self, keys: frozenset[str]) -> bool:
        """Whether any of ``keys`` was sent with a value: rare ones are not asked for one by one."""
        return not keys.isdisjoint(self._given)

    def unknown(self) -> list[str]:
        """Return the keys that were sent and never asked for, sorted."""
        return sorted(self.path(key) for key in self._given.keys() - self._asked)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(self.path(key), value, "true or false")
        return value

    def text(self, key: str) -> str | None:
        """Return a string, None when not sent."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise wrong(self.path(key), value, "a string")
        return value

    def integer(self, key: str, *, low: int, high: int | None = None) -> int | None:
        """Return an integer of at least ``low`` (and at most ``high``), None when not sent."""
        value = self.get(key)
        if value is None:
            return None
        bound = f"at least {low}" if high is None else f"{low} to {high}"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise wrong(self.path(key), value, f"an integer of {bound}")
        if value > (MAX_INTEGER if high is None else high):
            raise wrong(self.path(key), value, f"an integer of {bound}")
        return value

    def number(self, key: str, *, low: float, high: float = math.inf) -> float | None:
        """Return a finite number within the bounds, None when not sent."""
        value = self.get(key)
        if value is None:
            return None
        fits = not isinstance(value, bool) and isinstance(value, int | float)
        if not (fits and math.isfinite(value) and low <= value <= high):
            bound = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
            raise wrong(self.path(key), value, f"a finite number of {bound}")
        return float(value)

    def strings(self, key: str, *, most: int) -> list[str]:
        """Return a list of non-empty strings (one alone is a list too); empty when not sent."""
        value = self.get(key)
        if value is None:
            return []
        items: list[Any] = [value] if isinstance(value, str) else value
        wanted = f"a non-empty string or a list of at most {most} of them"
        if not isinstance(items, list) or len(items) > most:
            raise wrong(self.path(key), value, wanted)
        if not all(isinstance(item, str) and item for item in items):
            raise wrong(self.path(key), value, wanted)
        return list(items)

    def items(self, key: str) -> list[Any]:
        """Return a list, empty when not sent."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise wrong(self.path(key), value, "a list")
        return cast("list[Any]", value)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return an object, empty when not sent."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise wrong(self.path(key), value, "an object")
        return cast("dict[str, Any]", value)
