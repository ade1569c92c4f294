"""Takes secrets out of what leaves this host as evidence: logs, events, reports. The files in the attempt's folder stay raw.

Known are the tokens of the attempt's servers and the values that this host resolved for the blueprint's secret names. In
bytes a secret becomes as many stars, so that offsets stay true; one that is only half there at a log's end is held back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from a3r.blueprints.model import Blueprint
from a3r.worker.environments import Environments, SecretMissing, specs_of
from a3r.worker.folder import AttemptFolder

LEAST_BYTES = 6
"""Shorter values are no secrets: to cut them out would only make logs unreadable."""
GONE = "[secret]"


@dataclass(frozen=True)
class Redactor:
    """Knows some secrets. Longer ones come first, so that one within another leaves nothing."""

    secrets: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> Redactor:
        """For these values; a multi-line one (a key in PEM) is known by each of its lines too."""
        found: set[bytes] = set()
        for value in values:
            for part in (value, *value.splitlines()):
                raw = part.strip().encode()
                if len(raw) >= LEAST_BYTES:
                    found.add(raw)
        return cls(tuple(sorted(found, key=lambda raw: (-len(raw), raw))))

    @property
    def margin(self) -> int:
        """Bytes before and after a piece that must be seen with it."""
        return max((len(raw) for raw in self.secrets), default=1) - 1

    def mask(self, data: bytes) -> bytes:
        """The same number of bytes, with stars for secrets."""
        for raw in self.secrets:
            data = data.replace(raw, b"*" * len(raw))
        return data

    def text(self, said: str) -> str:
        """A sentence without secrets."""
        for raw in self.secrets:
            said = said.replace(raw.decode(), GONE)
        return said

    def value(self, value: Any) -> Any:
        """A JSON value without secrets in any of its strings, keys too."""
        if not self.secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(v) for v in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self.text(k): self.value(v) for k, v in cast("dict[str, Any]", value).items()}
        return value

    def read(self, path: Path, offset: int, limit: int, *, everything: bool = True) -> bytes:
        """At most ``limit`` bytes of a file from ``offset``, masked as in the whole file.

        ``everything``: the file is at its end; otherwise a beginning of a secret at the end waits for the rest of it.

        Raises:
            OSError: the file cannot be read.
        """
        before = min(self.margin, offset)
        with path.open("rb") as file:
            file.seek(offset - before)
            data = file.read(before + limit + self.margin)
        masked = self.mask(data)
        piece = masked[before : before + limit]
        at_end = len(data) <= before + limit
        return piece if everything or not at_end else piece[: len(piece) - self._begun(piece)]

    def _begun(self, data: bytes) -> int:
        """Bytes at the end that may be the beginning of a secret."""
        for size in range(min(self.margin, len(data)), 0, -1):
            tail = data[-size:]
            if any(raw.startswith(tail) for raw in self.secrets):
                return size
        return 0


def redactor_of(folder: AttemptFolder, environ: Mapping[str, str]) -> Redactor:
    """For an attempt of this host; of secrets that are not there nothing is known, and nothing can have leaked."""
    values: list[str] = []
    for path in folder.path.glob("server*/tokens.json"):
        values += json.loads(path.read_text("utf-8")).values()
    environments = Environments(folder.path.parents[1], environ)
    for name in _names(folder):
        try:
            values.append(environments.secret(name))
        except SecretMissing:
            continue
    return Redactor.of(values)


def _names(folder: AttemptFolder) -> set[str]:
    try:
        raw = folder.spec().blueprint
    except FileNotFoundError:
        return set()  # nothing was ever started here
    if not raw:
        return set()
    blueprint = Blueprint.model_validate(raw)
    named = [*blueprint.secret_names]
    for _, spec in specs_of(blueprint):
        named += spec.secret_names
    return set(named)
