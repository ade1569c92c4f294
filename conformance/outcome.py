"""What a check found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    DIFFERS = "differs"  # works; what was captured differs in a way that is the framework's own, and is stated
    FAILED = "failed"
    MISSING = "not installed"  # could not be installed here: no verdict on the endpoint


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the report."""

    group: str
    name: str
    verdict: Verdict
    what: str
    """What was run: packages with versions."""
    note: str = ""

    def line(self) -> str:
        """Return the line that is printed when the check is done."""
        note = f": {self.note}" if self.note else ""
        return f"{self.verdict.value:13} {self.group} / {self.name} [{self.what}]{note}"


Say = Callable[[Outcome], None]
