"""When a schedule is due: five cron fields in a time zone, as a crontab means them.

APScheduler counts weekdays from Monday and joins the two day fields with "and"; a crontab counts from Sunday and joins them with
"or". Weekdays are translated here; two restricted day fields are refused, because no reading of them is safe.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from a3r.core.errors import GoalError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBERS = {name: number for number, name in enumerate(_DAYS)}
_PART = re.compile(r"(?P<first>\*|[0-7a-z]+)(?:-(?P<last>[0-7a-z]+))?(?:/(?P<step>[1-7]))?")
HINT = (
    "Five fields: minute hour day-of-month month day-of-week, e.g. '0 2 * * 1' for Mondays at two."
)
MOST = 10_000
"""Firings that are counted; a daemon that was away for longer says "at least"."""


class Cron:
    """One schedule's times."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        """Read it.

        Raises:
            GoalError: not five fields, a value out of range, both day fields restricted, no such time zone, or it is never due.
        """
        fields = expression.lower().split()
        if len(fields) != 5:
            msg = f"the cron expression {expression!r} has {len(fields)} fields, not five"
            raise GoalError(msg, hint=HINT)
        minute, hour, day, month, weekday = fields
        if day != "*" and weekday != "*":
            msg = f"the cron expression {expression!r} restricts both day-of-month and day-of-week"
            raise GoalError(
                msg, hint="Leave one of them '*': programs do not agree on what both mean."
            )
        try:
            self._zone = ZoneInfo(timezone)
            self._trigger: Any = _trigger_class()(
                minute=minute,
                hour=hour,
                day=day,
                month=month,
                day_of_week=_weekdays(weekday),
                timezone=self._zone,
            )
        except (ValueError, KeyError, OSError) as error:
            msg = f"the cron expression {expression!r} in time zone {timezone!r} is not understood: {error}"
            raise GoalError(msg, hint=HINT) from error
        if self.after(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) is None:
            raise GoalError(f"{expression!r} is never due", hint=HINT)

    def after(self, at: float) -> float | None:
        """The first firing later than ``at`` (Unix seconds); None when there is none any more."""
        before = datetime.fromtimestamp(at, self._zone)
        found: datetime | None = self._trigger.get_next_fire_time(before, before)
        return None if found is None else found.timestamp()

    def due(self, since: float, now: float) -> list[float]:
        """Firings in (``since``, ``now``], oldest first, at most ``MOST``."""
        out: list[float] = []
        at = self.after(since)
        while at is not None and at <= now and len(out) < MOST:
            out.append(at)
            at = self.after(at)
        return out


def _trigger_class() -> Any:
    """APScheduler's: it has no types, and importing it costs time that other commands do not have."""
    return import_module("apscheduler.triggers.cron").CronTrigger


def _weekdays(field: str) -> str:
    """A crontab's weekdays as names; ValueError for what is none."""
    if field == "*":
        return field
    found: set[int] = set()
    for part in field.split(","):
        read = _PART.fullmatch(part)
        if read is None:
            msg = f"weekday {part!r}"
            raise ValueError(msg)
        step = int(read["step"] or 1)
        if read["first"] == "*":
            first, last = 0, 6
        else:
            first = _day(read["first"])
            last = _day(read["last"]) if read["last"] else (6 if read["step"] else first)
        if last < first:
            last += 7  # fri-mon; sun as 7
        found |= {n % 7 for n in range(first, last + 1, step)}
    return ",".join(_DAYS[n] for n in sorted(found))


def _day(text: str) -> int:
    if text.isdigit() and len(text) == 1:
        return int(text) % 7
    if text in _NUMBERS:
        return _NUMBERS[text]
    msg = f"weekday {text!r}"
    raise ValueError(msg)
