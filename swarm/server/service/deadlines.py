"""What ends by itself: episodes, client leases and eval gates. One look every ``TICK_S``."""

from __future__ import annotations

import logging
from collections.abc import Callable

from swarm.protocol.states import EpisodeState
from swarm.server.journal.records import EvalRound
from swarm.server.service.clock import sleep
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings

log = logging.getLogger(__name__)

TICK_S = 0.25


class Deadlines:
    """Watches the clock for all open episodes, calls pending or not (see ``Episode.overdue`` for what idle means)."""

    def __init__(self, core: Core, endings: Endings, changed: Callable[[], None]) -> None:
        self._core = core
        self._endings = endings
        self._changed = changed

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await sleep(self._core.clock, TICK_S)
            try:
                self.look()
            except Exception:
                log.exception("A deadline could not be enforced; trying again")

    def look(self) -> None:
        """Enforce everything that is due now."""
        core = self._core
        now = core.clock.monotonic()
        for client_id in core.clients.expire():
            self._endings.lose_client(client_id, f"the lease of client {client_id!r} ended")
        for episode in core.book.open():
            why = episode.overdue(now)
            if why:
                self._endings.lose(episode, EpisodeState.EXPIRED, f"{why} passed")
        if core.evals.overdue(core.step, now):
            missed = EvalRound(step=core.step, planned=0, completed=0, missed=True)
            core.journal.close_eval_round(missed)
            core.events.add("eval_round_missed", step=core.step)
            self._changed()
