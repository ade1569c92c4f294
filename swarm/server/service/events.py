"""The event log: numbered and kept by the journal, followed by any number of readers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from swarm.protocol.errors import JournalFailed
from swarm.protocol.messages import Event
from swarm.server.journal.journal import Journal
from swarm.server.service.clock import Bell, Clock

log = logging.getLogger(__name__)


class EventLog:
    """Append and follow. An event is in the journal before anyone sees it."""

    def __init__(self, clock: Clock, journal: Journal) -> None:
        self._journal = journal
        self._bell = Bell(clock)
        self._closed = False
        self.on_event: Callable[[Event], None] = lambda _event: None
        """Told of each event once the journal has it."""

    def add(self, kind: str, **data: Any) -> None:
        """Append an event of ``kind`` with JSON-able ``data``."""
        if self._closed:
            return
        self.on_event(self._journal.event(kind, data))
        self._bell.ring()

    def try_add(self, kind: str, **data: Any) -> None:
        """As ``add``, for news of what has happened already: an event that cannot be recorded is logged, and undoes nothing."""
        try:
            self.add(kind, **data)
        except JournalFailed as error:
            log.error("Unrecorded %s %r: %s", kind, data, error.message)  # noqa: TRY400

    async def follow(self, after_seq: int) -> AsyncGenerator[Event]:
        """Yield the events with ``seq > after_seq`` and then each new one, until ``close``."""
        seen = after_seq
        while not self._closed:
            page = self._journal.events_after(seen)
            for event in page:
                seen = event.seq
                yield event
            if not page and not self._closed:
                await self._bell.wait()

    def close(self) -> None:
        """End all followers; later events are not recorded."""
        self._closed = True
        self._bell.ring()
