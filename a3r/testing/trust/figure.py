"""One measured figure beside its goal, and the table of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A line of the table."""

    name: str
    goal: str
    result: str
    met: bool | None
    """None: there is no goal, the number is disclosed."""
    note: str = ""
    """What a reader needs to judge it: how it was measured, or where its limit lies."""

    @property
    def verdict(self) -> str:
        """``met``, ``MISSED``, or nothing where there is no goal."""
        if self.met is None:
            return ""
        return "met" if self.met else "MISSED"


def table(figures: Sequence[Figure]) -> str:
    """A Markdown table, and below it the notes."""
    rows = [("figure", "goal", "result", "")]
    rows += [(f.name, f.goal, f.result, f.verdict) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    notes = [f"- {f.name}: {f.note}" for f in figures if f.note]
    return "\n".join([*lines, "", *notes]) + "\n"


def percent(share: float) -> str:
    """``94.9 %``."""
    return f"{100 * share:.1f} %"
