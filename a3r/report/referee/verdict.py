"""What the referee says of a run: a grade, and for each rule that spoke the numbers that it saw."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import Field

from a3r.report.records import Record


class Grade(StrEnum):
    """From harmless to fatal; a run's grade is the worst of its findings (a note does not count)."""

    VALID = "valid"
    NOTE = "note"  # of a finding only: worth a line, no doubt about the run
    SUSPECT = "suspect"  # stays in the results and is named
    INVALID = "invalid"  # excluded from the results, with the reason


class Finding(Record):
    """One rule that spoke."""

    rule: str
    """Name in ``a3r.report.referee.rules.RULES``."""
    grade: Grade
    text: str
    """One sentence without a full stop, with the numbers; holds no text that a run could have written."""
    numbers: dict[str, float]
    """The same numbers by name, for tables."""


class RefereeVerdict(Record):
    """The judgement on one run."""

    run_id: str
    grade: Grade
    """``valid``, ``suspect`` or ``invalid``."""
    findings: tuple[Finding, ...] = ()
    """Worst first, then in the order of the rules."""
    unchecked: dict[str, str] = Field(default_factory=dict[str, str])
    """Rule -> why the records do not allow it; a rule that could not look has not cleared the run."""

    @property
    def reason(self) -> str:
        """Why the run is excluded, in words; empty when it is not invalid."""
        fatal = [f"{f.text} ({f.rule})" for f in self.findings if f.grade is Grade.INVALID]
        return "; ".join(fatal)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Findings that make it suspect or invalid."""
        return tuple(f for f in self.findings if f.grade in (Grade.SUSPECT, Grade.INVALID))


@dataclass(frozen=True)
class Unchecked:
    """A rule's answer when the records do not hold what it needs."""

    why: str


Answer: TypeAlias = Finding | Unchecked | None
"""None = the rule looked and found nothing."""
