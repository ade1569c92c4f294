"""Schedules: goals that are started again and again. A firing is taken before its campaign is made, so none is ever made twice."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from a3r.core.errors import NotFound
from a3r.core.ids import new_id
from a3r.store.book import Book, fetch
from a3r.store.rows import ScheduleRow
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

    def take_firing(self, schedule_id: str, due_at: float, said: str) -> bool:
        """Take the firing of ``due_at``, with every older one; False when it was taken already (or the schedule is gone)."""
        with self._db.write() as session:
            record = session.get(ScheduleTable, schedule_id)
            if record is None or (record.fired_at is not None and record.fired_at >= due_at):
                return False
            record.fired_at = due_at
            _say(record, said)
            return True

    def say_of_schedule(self, schedule_id: str, said: str, campaign_id: str | None = None) -> None:
        """Add a line to its story; ``campaign_id`` is the campaign that was started. Nothing happens when it is gone."""
        with self._db.write() as session:
            record = session.get(ScheduleTable, schedule_id)
            if record is not None:
                _say(record, said)
                record.campaign_id = campaign_id or record.campaign_id


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
