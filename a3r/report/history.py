"""What a campaign's leader and its people did, of the database's append-only lists: events, decisions, deviations, reviews."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a3r.report.cleaning import Cleaner
from a3r.report.records import Cut, DecisionRecord, DeviationRecord, EventRecord, ReviewRecord
from a3r.store.rows import DecisionRow, DeviationRow, EventRow, ReviewRow

if TYPE_CHECKING:  # verifying a folder needs no database library
    from a3r.store.store import Store

PAGE = 1000


@dataclass(frozen=True)
class History:
    """In order of time."""

    events: tuple[EventRecord, ...]
    decisions: tuple[DecisionRecord, ...]
    deviations: tuple[DeviationRecord, ...]
    reviews: tuple[ReviewRecord, ...]


def history(store: Store, campaign_id: str, cut: Cut | None, text: Cleaner) -> History:
    """What the database holds, up to ``cut``."""
    decisions = store.decisions(campaign_id)[: cut.decisions if cut else None]
    deviations = store.deviations(campaign_id)[: cut.deviations if cut else None]
    reviews = store.reviews(campaign_id)[: cut.reviews if cut else None]
    return History(
        events=tuple(
            _event(e, text)
            for e in _events(store, campaign_id)
            if cut is None or e.seq <= cut.event_seq
        ),
        decisions=tuple(_decision(d, text) for d in decisions),
        deviations=tuple(_deviation(d, campaign_id, text) for d in deviations),
        reviews=tuple(_review(r, text) for r in reviews),
    )


def _events(store: Store, campaign_id: str) -> Iterator[EventRow]:
    after = 0
    while page := store.events(campaign_id, after_seq=after, limit=PAGE):
        yield from page
        after = page[-1].seq


def _event(row: EventRow, text: Cleaner) -> EventRecord:
    return EventRecord(
        seq=row.seq,
        at=row.at,
        actor=text.text(row.actor),
        kind=text.text(row.kind),
        subject=text.text(row.subject),
        data=text.data(row.data),
    )


def _decision(row: DecisionRow, text: Cleaner) -> DecisionRecord:
    return DecisionRecord(
        stage_id=row.stage_id,
        what=text.text(row.what),
        why=text.text(row.why),
        evidence=text.data(row.evidence),
        at=row.at,
    )


def _deviation(row: DeviationRow, campaign_id: str, text: Cleaner) -> DeviationRecord:
    return DeviationRecord(
        subject=row.attempt_id or row.blueprint_id or campaign_id,
        what=text.text(row.what),
        data=text.data({k: v for k, v in row.data.items() if k not in ("what", "seq")}),
        at=row.at,
    )


def _review(row: ReviewRow, text: Cleaner) -> ReviewRecord:
    return ReviewRecord(
        blueprint_id=row.blueprint_id,
        content_hash=row.content_hash,
        verdict=row.verdict.value,
        by=text.text(row.by),
        note=text.text(row.note),
        at=row.at,
        voided=row.voided_at is not None,
    )
