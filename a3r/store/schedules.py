"""Schedules: goals that are started again and again. A firing and its campaign are one write, so none is made twice and none is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from a3r.core.errors import NotFound
from a3r.core.ids import new_id
from a3r.store.book import Book, fetch, note
from a3r.store.campaigns import NewCampaign, insert_campaign, to_row
from a3r.store.rows import CampaignRow, ScheduleRow
from a3r.store.tables import ScheduleTable

LINES = 20
"""Of a schedule's story; older ones are forgotten."""


class ScheduleBook(Book):
    """What the Store says about schedules."""

    def add_schedule(
        self, goal_path: str, cron: str, timezone: str, options: dict[str, Any], at: float
    ) -> ScheduleRow:
        """Add one; it is due from now on. The same goal, cron and zone again give the schedule that is there."""
        with self._db.write() as session:
            query = select(ScheduleTable).where(
                ScheduleTable.goal_path == goal_path,
                ScheduleTable.cron == cron,
                ScheduleTable.timezone == timezone,
            )
            known = session.exec(query).first()
            if known is not None:
                known.options = options
                return _row(known)
            record = ScheduleTable(
                id=new_id("sch", at),
                goal_path=goal_path,
                cron=cron,
                timezone=timezone,
                options=options,
                state="active",
                created_at=at,
            )
            session.add(record)
            session.flush()
            return _row(record)

    def schedules(self) -> list[ScheduleRow]:
        """All schedules, oldest first."""
        with self._db.read() as session:
            order = (col(ScheduleTable.created_at), col(ScheduleTable.id))
            return [_row(r) for r in session.exec(select(ScheduleTable).order_by(*order))]

    def remove_schedule(self, schedule_id: str) -> ScheduleRow:
        """Forget it; campaigns that it started go on.

        Raises:
            NotFound: no such schedule.
        """
        with self._db.write() as session:
            record = _schedule(session, schedule_id)
            session.delete(record)
            return _row(record)

    def take_firing(self, schedule_id: str, due_at: float, said: Sequence[str]) -> bool:
        """Take the firing of ``due_at``, with every older one, without a campaign; ``said`` tells why, line by line.

        False when it was taken already, or the schedule is gone.
        """
        with self._db.write() as session:
            return _taken(session, schedule_id, due_at, said) is not None

    def fire_schedule(
        self, schedule_id: str, due_at: float, said: Sequence[str], new: NewCampaign, at: float
    ) -> CampaignRow | None:
        """Take the firing of ``due_at``, with every older one, and file its campaign, all or nothing; None as ``take_firing``.

        The last line of ``said`` is told with the campaign's id behind it.
        """
        with self._db.write() as session:
            record = _taken(session, schedule_id, due_at, said[:-1])
            if record is None:
                return None
            campaign = insert_campaign(session, new, at)
            data = {"schedule": schedule_id, "due": due_at}
            note(
                session,
                campaign.id,
                "campaign_scheduled",
                campaign.id,
                at,
                actor="schedule",
                data=data,
            )
            record.campaign_id = campaign.id
            _say(record, f"{said[-1]} {campaign.id}")
            return to_row(campaign)


def _taken(
    session: Session, schedule_id: str, due_at: float, said: Sequence[str]
) -> ScheduleTable | None:
    record = session.get(ScheduleTable, schedule_id)
    if record is None or (record.fired_at is not None and record.fired_at >= due_at):
        return None
    record.fired_at = due_at
    for line in said:
        _say(record, line)
    return record


def _schedule(session: Session, schedule_id: str) -> ScheduleTable:
    try:
        return fetch(session, ScheduleTable, schedule_id, "schedule")
    except NotFound as error:
        error.hint = error.hint or "`a3r campaign schedule --list` shows what there is"
        raise


def _say(record: ScheduleTable, said: str) -> None:
    lines = [*record.detail.split("\n"), said] if record.detail else [said]
    record.detail = "\n".join(lines[-LINES:])


def _row(record: ScheduleTable) -> ScheduleRow:
    return ScheduleRow.model_validate(record.model_dump())
