"""A campaign's history: events, decisions, deviations. Only ever added to."""

from __future__ import annotations

from typing import Any

from sqlmodel import col, func, select

from a3r.store.book import Book, fetch, note
from a3r.store.rows import DecisionRow, DeviationRow, EventRow
from a3r.store.tables import CampaignTable, DecisionTable, DeviationTable, EventTable


class HistoryBook(Book):
    """What the Store says about what happened and why."""

    def add_event(
        self,
        campaign_id: str,
        actor: str,
        kind: str,
        subject: str,
        data: dict[str, Any],
        at: float,
    ) -> EventRow:
        """Add one line. The Store itself tells of every change of state; this is for what only the caller knows."""
        with self._db.write() as session:
            fetch(session, CampaignTable, campaign_id, "campaign")
            event = note(session, campaign_id, kind, subject, at, actor=actor, data=data)
            session.flush()
            return _event_row(event)

    def events(self, campaign_id: str, after_seq: int = 0, limit: int = 1000) -> list[EventRow]:
        """Up to ``limit`` events with ``seq > after_seq``, in order of arrival (``at`` is when it happened)."""
        with self._db.read() as session:
            found = session.exec(
                select(EventTable)
                .where(EventTable.campaign_id == campaign_id, col(EventTable.seq) > after_seq)
                .order_by(col(EventTable.seq))
                .limit(limit)
            )
            return [_event_row(event) for event in found]

    def last_event_seq(self) -> int:
        """``seq`` of the newest event of any campaign, 0 without any: unlike a heartbeat, every change of state adds one."""
        with self._db.read() as session:
            return session.exec(select(func.max(EventTable.seq))).one() or 0

    def add_decision(
        self,
        campaign_id: str,
        stage_id: str | None,
        what: str,
        why: str,
        evidence: dict[str, Any],
        at: float,
    ) -> DecisionRow:
        """Record a decision with the numbers it looked at."""
        with self._db.write() as session:
            fetch(session, CampaignTable, campaign_id, "campaign")
            decision = DecisionTable(
                campaign_id=campaign_id,
                stage_id=stage_id,
                what=what,
                why=why,
                evidence=evidence,
                at=at,
            )
            session.add(decision)
            data = {"what": what, "why": why}
            note(
                session,
                campaign_id,
                "decided",
                stage_id or campaign_id,
                at,
                actor="leader",
                data=data,
            )
            session.flush()
            return DecisionRow.model_validate(decision.model_dump())

    def decisions(self, campaign_id: str) -> list[DecisionRow]:
        """The campaign's decisions in order."""
        with self._db.read() as session:
            query = select(DecisionTable).where(DecisionTable.campaign_id == campaign_id)
            found = session.exec(query.order_by(col(DecisionTable.id)))
            return [DecisionRow.model_validate(d.model_dump()) for d in found]

    def add_deviation(
        self,
        campaign_id: str,
        what: str,
        data: dict[str, Any],
        at: float,
        *,
        blueprint_id: str | None = None,
        attempt_id: str | None = None,
    ) -> DeviationRow:
        """Record something that was done otherwise than the blueprint says."""
        with self._db.write() as session:
            fetch(session, CampaignTable, campaign_id, "campaign")
            deviation = DeviationTable(
                campaign_id=campaign_id,
                blueprint_id=blueprint_id,
                attempt_id=attempt_id,
                what=what,
                data=data,
                at=at,
            )
            session.add(deviation)
            session.flush()
            return DeviationRow.model_validate(deviation.model_dump())

    def deviations(self, campaign_id: str) -> list[DeviationRow]:
        """The campaign's deviations in order."""
        with self._db.read() as session:
            query = select(DeviationTable).where(DeviationTable.campaign_id == campaign_id)
            found = session.exec(query.order_by(col(DeviationTable.id)))
            return [DeviationRow.model_validate(d.model_dump()) for d in found]


def _event_row(event: EventTable) -> EventRow:
    return EventRow.model_validate(event.model_dump(exclude={"attempt_seq"}))
