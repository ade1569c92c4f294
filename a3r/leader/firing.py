"""Fires schedules: each due time starts its goal once, never two campaigns of one schedule at once, and nothing is missed silently."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from a3r.core.errors import A3RError, NotFound
from a3r.core.ports import Clock
from a3r.core.types import CampaignState, ReviewMode
from a3r.leader.cron import Cron
from a3r.leader.goal_parsing import goal_file, goal_text
from a3r.store.campaigns import NewCampaign
from a3r.store.rows import ScheduleRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)

LATE_S = 3600.0
"""A firing that no daemon saw in time is still made up for so long; an older one is missed, and said so."""
FINAL = frozenset({CampaignState.DONE, CampaignState.STOPPED})


class Understood(Protocol):
    """What a campaign is filed with."""

    @property
    def name(self) -> str:
        """Of the goal."""
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """The goal as it was understood."""
        ...

    @property
    def review(self) -> ReviewMode:
        """Who approves."""
        ...

    @property
    def planner(self) -> str:
        """Who plans."""
        ...


ReadGoal = Callable[[str, str], Understood]
"""(text, folder of goal.md) -> the goal; raises GoalError. The same that a start by hand goes through."""


def fire_due(store: Store, clock: Clock, read: ReadGoal) -> int:
    """Look at every schedule; return how many campaigns were started. Safe to repeat and to kill at any line."""
    return sum(_fire(store, found, clock.time(), read) for found in store.schedules())


def _fire(store: Store, schedule: ScheduleRow, now: float, read: ReadGoal) -> bool:
    try:
        cron = Cron(schedule.cron, schedule.timezone)
    except A3RError as error:
        # It was valid when it was added; a zone may have left the machine since.
        logger.warning("schedule %s is not understood: %s", schedule.id, error.message)
        return False
    since = schedule.created_at if schedule.fired_at is None else schedule.fired_at
    due = cron.due(since, now)
    if not due:
        return False
    latest = due[-1]
    on_time = now - latest <= LATE_S
    missed = due[:-1] if on_time else due
    said = [_missed(schedule, missed)] if missed else []
    if not on_time:
        store.take_firing(schedule.id, latest, said)
        return False
    when, new = _when(schedule, latest), _campaign(store, schedule, read)
    if isinstance(new, str):
        store.take_firing(schedule.id, latest, [*said, f"{when}: {new}"])
        return False
    said.append(f"{when}: started campaign")
    return store.fire_schedule(schedule.id, latest, said, new, now) is not None


def _campaign(store: Store, schedule: ScheduleRow, read: ReadGoal) -> NewCampaign | str:
    """What to file, or why nothing is."""
    busy = _busy(store, schedule)
    if busy:
        return f"skipped, campaign {busy} is not over"
    try:
        file = goal_file(Path(schedule.goal_path))
        text = goal_text(file)
        goal = read(text, str(file.parent))
    except A3RError as error:
        return f"not started, the goal can not be used: {error.message.splitlines()[0]}"
    asked = schedule.options.get("review")
    review = ReviewMode(asked) if asked else goal.review
    return NewCampaign(goal.name, text, str(file.parent), goal.spec, review, goal.planner)


def _busy(store: Store, schedule: ScheduleRow) -> str:
    """The campaign of this schedule that is under way; empty when there is none."""
    if schedule.campaign_id is None:
        return ""
    try:
        row = store.campaign(schedule.campaign_id)
    except NotFound:
        return ""
    return "" if row.state in FINAL else row.id


def _missed(schedule: ScheduleRow, times: list[float]) -> str:
    first = _when(schedule, times[0])
    if len(times) == 1:
        return f"{first}: missed, no daemon ran"
    return f"{first} to {_when(schedule, times[-1])}: {len(times)} firings missed, no daemon ran"


def _when(schedule: ScheduleRow, at: float) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(schedule.timezone)).strftime("%Y-%m-%d %H:%M %Z")
