"""Of the database's append-only lists: amendments, revisions of clients, calls of a language model (without their text)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from a3r.report.cleaning import Cleaner
from a3r.report.records import AmendmentRecord, CallRecord, Cut, RevisionRecord

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
    return Ledger(
        amendments=tuple(
            AmendmentRecord(
                stage_id=a.stage_id,
                changes=text.data(a.changes),
                reason=text.text(a.reason),
                by=text.text(a.by),
                at=a.at,
            )
            for a in store.amendments(campaign_id)[: cut.amendments if cut else None]
        ),
        revisions=tuple(
            RevisionRecord(
                blueprint_id=r.blueprint_id,
                ordinal=r.ordinal,
                tree_hash=r.tree_hash,
                diff=text.text(r.diff, LONGEST_DIFF),
                reason=text.text(r.reason),
                state=r.state.value,
                by=text.text(r.by),
                at=r.at,
                decided_at=r.decided_at,
            )
            for r in store.revisions(campaign_id)[: cut.revisions if cut else None]
        ),
        calls=tuple(
            CallRecord(
                id=c.id,
                purpose=text.text(c.purpose),
                model=text.text(c.model),
                request_hash=c.request_hash,
                state=c.state.value,
                reserved_usd=c.reserved_usd,
                reserved_tokens=c.reserved_tokens,
                cost_usd=c.cost_usd,
                prompt_tokens=c.prompt_tokens,
                completion_tokens=c.completion_tokens,
                error=text.text(c.error),
                at=c.at,
                settled_at=c.settled_at,
            )
            for c in store.llm_calls(campaign_id)[: cut.calls if cut else None]
        ),
    )
