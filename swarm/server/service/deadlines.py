"""What ends by itself: episodes, client leases and eval gates. One look every ``TICK_S``."""

from __future__ import annotations

import logging
from collections.abc import Callable

from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EngineState, EpisodeState
from swarm.server.journal.records import EvalRound
from swarm.server.service.abandoned import Abandoned
from swarm.server.service.clock import sleep
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.health import Health

log = logging.getLogger(__name__)

TICK_S = 0.25


class Deadlines:
    """Watches the clock for all open episodes, calls pending or not (see ``Episode.overdue`` for what idle means)."""

    def __init__(self, core: Core, endings: Endings, changed: Callable[[], None]) -> None:
        self._core = core
        self._endings = endings
        self._changed = changed
        self._health = Health(core)
        self._abandoned = Abandoned(core, endings)
        self._lost: set[str] = set()
        """Clients whose lease ended and whose episodes could not all be ended yet."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await sleep(self._core.clock, TICK_S)
            try:
                self.look()
            except Exception:
                log.exception("A deadline could not be enforced; trying again")

    def look(self) -> None:
        """Enforce everything that is due now. What cannot be recorded is tried again, and keeps nothing else from its end."""
        core = self._core
        now = core.clock.monotonic()
        self._lost.update(core.clients.expire())
        for client_id in sorted(self._lost):
            self._try(lambda client_id=client_id: self._lose(client_id), f"client {client_id!r}")
        for episode in core.book.open():
            why = episode.overdue(now)
            if why:
                self._try(
                    lambda episode=episode, why=why: self._endings.lose(
                        episode, EpisodeState.EXPIRED, f"{why} passed"
                    ),
                    f"episode {episode.episode_id}",
                )
        self._try(lambda: self._gate(now), f"the evaluation of step {core.step}")
        self._try(self._abandon, "a group that nobody fills")
        if core.consent.came_due():
            self._changed()
        self._health.look()

    def _abandon(self) -> None:
        if self._abandoned.look():
            self._changed()

    def _lose(self, client_id: str) -> None:
        """End the episodes of a client whose lease ended, unless it came back (which ended them)."""
        if self._core.clients.get(client_id) is None:
            self._endings.lose_client(client_id, f"the lease of client {client_id!r} ended")
        self._lost.discard(client_id)
        self._changed()  # the step may have waited for its agreement (C4)

    def _gate(self, now: float) -> None:
        """Open a gate whose deadline passed, once the journal knows that its round was missed."""
        core, step = self._core, self._core.step
        if core.lifecycle.state is EngineState.TRAINED or not core.evals.overdue(step, now):
            return
        core.journal.close_eval_round(EvalRound(step=step, planned=0, completed=0, missed=True))
        core.evals.restore(step, "missed")
        core.events.try_add("eval_round_missed", step=step)
        self._changed()

    def _try(self, end: Callable[[], None], whose: str) -> None:
        try:
            end()
        except SwarmError as error:
            log.error("The end of %s is not recorded yet: %s", whose, error.message)  # noqa: TRY400
