"""Secrets out of whatever is shown: replaced by value, and by the name of the variable that holds them.

Agents print their environment, tools return configuration files: what they say is kept for training, and must not show a key to
everyone who may read a log or a trace. Applied where text leaves: to log records, and to traces and pages when they are read.
Token ids stay as they are, since they are what was trained on: whoever may read them can decode them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swarm.server.keys import KEY_PREFIX, Tokens

HIDDEN = "[redacted]"
LEAST_VALUE = 8
"""Characters of a value that is looked for everywhere; a shorter one would hide ordinary words, and goes by its name only."""
_OWN_KEYS = re.compile(re.escape(KEY_PREFIX) + r"[A-Za-z0-9_\-.]+")
_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)


class Redactor:
    """Knows what to hide."""

    def __init__(self, values: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """``values`` are secrets themselves, ``names`` variables whose assigned values are secret. Keys of episodes always are."""
        long_enough = {value for value in values if len(value) >= LEAST_VALUE}
        # Longest first: one secret may begin with another.
        self._values = sorted(long_enough, key=lambda value: (-len(value), value))
        self._names = {name: _assigned(name) for name in sorted(set(names))}

    @classmethod
    def of_server(cls, tokens: Tokens, secrets: Mapping[str, str] | None = None) -> Redactor:
        """Return one for the tokens of this server and for ``secrets``: variable -> value ("" when only its name is known)."""
        own = (tokens.admin, tokens.client, tokens.eval, tokens.signing)
        secrets = secrets or {}
        return cls([*own, *secrets.values()], secrets)

    def text(self, text: str) -> str:
        """Return ``text`` with secrets hidden; the same object when it has none."""
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        if KEY_PREFIX in text:
            text = _OWN_KEYS.sub(HIDDEN, text)
        for name, pattern in self._names.items():
            if name in text:
                text = pattern.sub(_hide_value, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with secrets hidden in all its strings; a string under a secret name is hidden whole.

        The same object when there is nothing to hide.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            shown = [self.value(item) for item in value]
            changed = any(new is not old for new, old in zip(shown, value, strict=True))
            return shown if changed else value
        if isinstance(value, dict):
            return self._mapping(value)
        return value

    def hidden(self, pieces: Sequence[str]) -> frozenset[int]:
        """Return the positions of pieces of one text (its tokens) that hold any part of a secret."""
        spans = self._spans("".join(pieces))
        if not spans:
            return frozenset()
        found: list[int] = []
        at = 0
        for position, piece in enumerate(pieces):
            end = at + len(piece)
            if any(at < last and first < end for first, last in spans):
                found.append(position)
            at = end
        return frozenset(found)

    def _mapping(self, given: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, item in given.items():
            secret = key in self._names and isinstance(item, str) and item
            shown[self.text(key)] = HIDDEN if secret else self.value(item)
        same = all(shown.get(key) is item for key, item in given.items())
        return given if same else shown

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets lie."""
        literal = [re.compile(re.escape(value)) for value in self._values if value in text]
        spans = [
            found.span() for pattern in (*literal, _OWN_KEYS) for found in pattern.finditer(text)
        ]
        for name, pattern in self._names.items():
            if name in text:
                spans += [found.span("value") for found in pattern.finditer(text)]
        return spans


def secret_variables(environment: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that hold secrets: ``names``, and those that ``environment`` names as such (``*_KEY``, ``*_TOKEN``...)."""
    known = [name for name in environment if _SECRET_NAME.search(name)]
    return {name: environment.get(name, "") for name in (*known, *names)}


class RedactingFormatter(logging.Formatter):
    """Another formatter, with secrets hidden in what it writes: messages, arguments and tracebacks alike."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self.inner, self._redactor = inner, redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the line or lines of a record."""
        return self._redactor.text(self.inner.format(record))


def redact_logs(redactor: Redactor) -> None:
    """Hide secrets in everything that the root logger's handlers write from now on. Safe to call again: the newest holds."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter()
        if isinstance(inner, RedactingFormatter):
            inner = inner.inner
        handler.setFormatter(RedactingFormatter(inner, redactor))


def _assigned(name: str) -> re.Pattern[str]:
    r"""``NAME=value``, ``NAME: value``, ``"NAME": "value"``, also inside of a JSON text (``\"NAME\": \"value\"``)."""
    return re.compile(
        rf"(?<![A-Za-z0-9_]){re.escape(name)}(?:\\*[\"'])?\s*[:=]\s*(?:\\*[\"'])?(?P<value>[^\s\"'\\,;&}}]+)"
    )


def _hide_value(found: re.Match[str]) -> str:
    start = found.start("value") - found.start()
    return found[0][:start] + HIDDEN
