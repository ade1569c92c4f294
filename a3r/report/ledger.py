"""Of the database's append-only lists: amendments, revisions of clients, calls of a language model (without their text)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from a3r.report.cleaning import Cleaner
from a3r.report.records import AmendmentRecord, CallRecord, Cut, RevisionRecord
from a3r.store.rows import AmendmentRow, LlmCallRow, RevisionRow

if TYPE_CHECKING:  # verifying a folder needs no database library
    from a3r.store.store import Store

LONGEST_DIFF = 60_000
"""Characters; a longer diff is cut and says so."""


@dataclass(frozen=True)
class Ledger:
    """In order of time."""

    amendments: tuple[AmendmentRecord, ...]
    revisions: tuple[RevisionRecord, ...]
    calls: tuple[CallRecord, ...]


def ledger(store: Store, campaign_id: str, cut: Cut | None, text: Cleaner) -> Ledger:
    """What the database holds, up to ``cut``."""
    amendments = store.amendments(campaign_id)[: cut.amendments if cut else None]
    revisions = store.revisions(campaign_id)[: cut.revisions if cut else None]
    calls = store.llm_calls(campaign_id)[: cut.calls if cut else None]
    return Ledger(
        amendments=tuple(_amendment(a, text) for a in amendments),
        revisions=tuple(_revision(r, text) for r in revisions),
        calls=tuple(_call(c, text) for c in calls),
    )


def _amendment(row: AmendmentRow, text: Cleaner) -> AmendmentRecord:
    return AmendmentRecord(
        stage_id=row.stage_id,
        changes=text.data(row.changes),
        reason=text.text(row.reason),
        by=text.text(row.by),
        at=row.at,
    )


def _revision(row: RevisionRow, text: Cleaner) -> RevisionRecord:
    return RevisionRecord(
        blueprint_id=row.blueprint_id,
        ordinal=row.ordinal,
        tree_hash=row.tree_hash,
        diff=text.text(row.diff, LONGEST_DIFF),
        reason=text.text(row.reason),
        state=row.state.value,
        by=text.text(row.by),
        at=row.at,
        decided_at=row.decided_at,
    )


def _call(row: LlmCallRow, text: Cleaner) -> CallRecord:
    return CallRecord(
        id=row.id,
        purpose=text.text(row.purpose),
        model=text.text(row.model),
        request_hash=row.request_hash,
        state=row.state.value,
        reserved_usd=row.reserved_usd,
        reserved_tokens=row.reserved_tokens,
        cost_usd=row.cost_usd,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        error=text.text(row.error),
        at=row.at,
        settled_at=row.settled_at,
    )
