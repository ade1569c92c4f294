"""Settings of the daemon and where each came from: environment > ``.a3r/config.toml`` > default. Resolved once, here."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.errors import WorkspaceError

CONFIG_FILE = "config.toml"


@dataclass(frozen=True)
class Setting:
    """One setting: its resolved value and its source."""

    name: str
    value: float
    source: str
    """``default``, the file's name, or the variable's name."""
    meaning: str


DEFAULTS: dict[str, tuple[float, float, str]] = {
    "heartbeat_s": (2.0, 0.05, "seconds between a worker's heartbeats"),
    "lease_s": (15.0, 0.2, "seconds without one until an attempt counts as unreachable"),
    "lost_after_s": (60.0, 0.0, "further seconds, with the daemon up, until it is given up"),
}
"""Name -> (default, smallest value, meaning)."""


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"A3R_{name.upper()}"


def resolve(root: Path, env: Mapping[str, str]) -> list[Setting]:
    """Return every setting of the workspace ``root``.

    Raises:
        WorkspaceError: a value is no number or too small, or the file has an unknown key.
    """
    file = _file(root)
    found: list[Setting] = []
    for name, (default, least, meaning) in DEFAULTS.items():
        given: Any
        if env.get(variable(name), "").strip():
            given, source = env[variable(name)], variable(name)
        elif name in file:
            given, source = file[name], CONFIG_FILE
        else:
            given, source = default, "default"
        found.append(Setting(name, _number(given, least, name, source), source, meaning))
    return found


def _number(given: Any, least: float, name: str, source: str) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise WorkspaceError(
            f"{source}: {name} must be a number of at least {least:g}, not {given!r}.",
            hint="'a3r config show' lists all settings and their sources.",
        )
    return value


def _file(root: Path) -> dict[str, Any]:
    path = root / CONFIG_FILE
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise WorkspaceError(
            f"{str(path)!r} cannot be read: {error}.", hint="Correct it or remove it."
        ) from error
    unknown = sorted(set(found) - set(DEFAULTS))
    if unknown:
        raise WorkspaceError(
            f"{str(path)!r}: unknown key {unknown[0]!r}.", hint=f"Known: {', '.join(DEFAULTS)}."
        )
    return found
