"""The events of one attempt: appended to a file, numbered by line, sent up by the uplink."""

from __future__ import annotations

from typing import Any

from a3r.core.ports import Clock
from a3r.core.wire import EventReport
from a3r.worker.folder import AttemptFolder, append_lines


class EventLog:
    """Writes ``events.jsonl``. One writer: the attempt's runner."""

    def __init__(self, folder: AttemptFolder, clock: Clock) -> None:
        """Go on after the events that are there."""
        self._folder, self._clock = folder, clock
        self._next = len(folder.events())

    def add(self, actor: str, kind: str, **data: Any) -> None:
        """Record one event; values must be JSON."""
        event = EventReport(
            seq=self._next, at=self._clock.time(), actor=actor, kind=kind, data=data
        )
        append_lines(self._folder.events_file, [event.model_dump(mode="json")])
        self._next += 1

    def deviation(self, what: str, why: str, **data: Any) -> None:
        """Record that the attempt went otherwise than planned, with what was done about it."""
        self.add("worker", "deviation", what=what, why=why, **data)
