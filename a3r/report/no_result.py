"""A campaign without a single result: what failed, how often and why, counted from the records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from a3r.core.types import RunState
from a3r.report.records import Records

NO_REPAIR = "no repair"
"""Beginning of ``what`` of the decision that a repair of a client was given up."""


@dataclass(frozen=True)
class NoResult:
    """Texts may hold outside words."""

    planned: int
    failed: int
    reason: str
    """The most frequent one; empty when no run failed."""
    count: int
    """Failed runs with it."""
    repairs: tuple[str, ...]
    """Why repairs of the client were given up, in order."""

    def counted(self) -> str:
        """``No run has a result: of 4 planned runs 3 failed, 1 ended otherwise or was not run``."""
        others = self.planned - self.failed
        rest = f", {others} ended otherwise or {'was' if others == 1 else 'were'} not run"
        return f"No run has a result: of {self.planned} planned runs {self.failed} failed{rest if others else ''}"


def no_result(records: Records) -> NoResult | None:
    """None when a run succeeded, or nothing was planned."""
    planned = sum(len(b.seeds) for b in records.blueprints)
    if not planned or any(r.state == RunState.SUCCEEDED for r in records.runs):
        return None
    reasons = Counter(
        r.reason or "no reason recorded" for r in records.runs if r.state == RunState.FAILED
    )
    reason, count = reasons.most_common(1)[0] if reasons else ("", 0)
    gave_up = [d.why for d in records.decisions if d.what.startswith(NO_REPAIR)]
    return NoResult(
        planned=planned,
        failed=reasons.total(),
        reason=reason,
        count=count,
        repairs=tuple(dict.fromkeys(gave_up)),
    )


def no_result_text(found: NoResult) -> str:
    """Whole sentences: how many failed, the most frequent reason, and what became of repairs."""
    parts = [f"{found.counted()}."]
    if found.reason:
        parts.append(f"Most often ({found.count} of {found.failed}): {found.reason.rstrip('.')}.")
    parts += [f"The client was not mended: {why.rstrip('.')}." for why in found.repairs]
    return " ".join(parts)
