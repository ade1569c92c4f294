"""Secrets taken out of text that leaves the machine: known values, and what has the form of a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MARK = "[redacted]"
SHORTEST = 6
"""Characters; a shorter value would be found by chance in every text."""
_FORMS = re.compile(
    r"""
    -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
  | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}
  | \b(?:ghp|gho|ghu|ghs|ghr|glpat|hf|xox[abprs]|github_pat|npm|pypi)[_-][A-Za-z0-9_-]{16,}
  | \bAKIA[0-9A-Z]{16}\b
  | \bAIza[0-9A-Za-z_-]{30,}
  | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
  | (?<=://)[^\s/:@"']+:[^\s/@"']+(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)
# A run of word characters is tried from its start only: a log of nothing but "a-a-a-" would take hours otherwise.
_NAME = r"""[a-z0-9_-]*(?:authorization|api[_-]?key|apikey|secret|password|passwd|access[_-]?token|auth[_-]?token)"""
_KEY = re.compile(rf"(?ix) {_NAME}")
_NAMED = re.compile(
    rf"""(?ix)
    ((?<![a-z0-9_-]) (?:{_NAME}) \\?["']? \s* [:=] \s* \\?["']? (?:bearer\s+|basic\s+)?)
    ((?!\[redacted\]|(?:bearer|basic)\s)[^\s"'\\,;&}}\]]{{6,}})
    """
)
"""``name: value`` or ``name=value``, quoted or not; the name stays."""
_BEARER = re.compile(r"(?i)\b(bearer\s+)([A-Za-z0-9._~+/=-]{12,})")


class Redactor:
    """Replaces secrets; counts how often."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets``: values that are known to be secret; too short ones are ignored."""
        known = sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self.count = 0

    def text(self, value: str) -> str:
        """The text without secrets; the same text when there is none."""
        if self._known is not None:
            value, found = self._known.subn(MARK, value)
            self.count += found
        value, found = _FORMS.subn(MARK, value)
        self.count += found
        for pattern in (_NAMED, _BEARER):
            value = pattern.sub(self._keep_name, value)
        return value

    def data(self, value: Any) -> Any:
        """JSON with every text in it redacted; the value of a key that names a secret is replaced whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
            return {self.text(k): self._entry(k, v) for k, v in pairs.items()}
        if isinstance(value, list | tuple):
            rows: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
            return [self.data(v) for v in rows]
        return value

    def raw(self, value: bytes) -> bytes:
        """Bytes of a log, whatever they are."""
        return self.text(value.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def _entry(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value not in ("", MARK) and _KEY.fullmatch(key):
            self.count += 1
            return MARK
        return self.data(value)

    def _keep_name(self, found: re.Match[str]) -> str:
        self.count += 1
        return found[1] + MARK
