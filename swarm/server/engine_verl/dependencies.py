"""Which packages the engine needs, in which tested versions, and what to say when one is missing or wrong.

Reads only what is installed, imports none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from swarm.protocol.errors import ConfigError

HINT = (
    "'make setup-verl' installs what was tested; on a GPU cluster: pip install 'verl[vllm]==0.9.1'."
)
Installed = Callable[[str], "str | None"]


@dataclass(frozen=True)
class Range:
    """Versions of a package that this engine is tested with: ``low`` and later, before ``below``."""

    package: str
    low: str
    below: str
    why: str


REQUIRED = (
    Range("verl", "0.9.1", "0.10", "its worker groups, losses and checkpoint managers are driven"),
    Range("ray", "2.50", "3", "it places and runs the workers"),
    Range("torch", "2.8", "2.14", "it trains"),
    Range("transformers", "5.9", "5.25", "it reads the model"),
    Range("tensordict", "0.8", "1", "it carries batches to the workers"),
    Range("omegaconf", "2.3", "3", "verl's configuration is written in it"),
)
ROLLOUT = {
    "vllm": Range("vllm", "0.24", "0.32", "it samples"),
    "sglang": Range("sglang", "0.5", "0.6", "it samples"),
}


@dataclass(frozen=True)
class Problem:
    """A package that is missing (``found`` is None) or of an untested version."""

    wanted: Range
    found: str | None

    def __str__(self) -> str:
        """``ray is missing (>= 2.50, < 3: it places ...)``."""
        state = "is missing" if self.found is None else f"is {self.found}"
        wanted = self.wanted
        return f"{wanted.package} {state} (tested: >= {wanted.low}, < {wanted.below}; {wanted.why})"


def installed_version(package: str) -> str | None:
    """Version of an installed distribution; None when there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def problems(rollout: str, installed: Installed = installed_version) -> list[Problem]:
    """Everything that is missing or of an untested version, in the order of the lists above; empty = all is well.

    ``rollout`` is ``vllm`` or ``sglang``: only the one that is asked for is looked at.
    """
    wanted = (*REQUIRED, ROLLOUT[rollout])
    found = [(one, installed(one.package)) for one in wanted]
    return [Problem(one, version) for one, version in found if not _fits(one, version)]


def require(rollout: str, installed: Installed = installed_version) -> None:
    """Check at start, before the slow imports.

    Raises:
        ConfigError: names every package that is missing or wrong.
    """
    wrong = problems(rollout, installed)
    if wrong:
        listed = "; ".join(map(str, wrong))
        raise ConfigError(f"The engine 'verl' cannot start: {listed}.", hint=HINT)


def _fits(wanted: Range, found: str | None) -> bool:
    if found is None:
        return False
    return _numbers(wanted.low) <= _numbers(found) < _numbers(wanted.below)


def _numbers(version: str) -> tuple[int, ...]:
    """Release numbers; what follows them (rc1, +cpu) does not count."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match.group().split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
