"""What watchers of a server read: the overview, the totals of its process, and the newest step. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from swarm.protocol.messages import Status
from swarm.protocol.overview import Overview
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EpisodeKind
from swarm.server.service.core import Core
from swarm.server.service.overview import overview
from swarm.server.service.progress import Votes
from swarm.server.service.tokenizers import Tokenizers
from swarm.server.service.traffic import Traffic


class Monitor:
    """Reads one service; ``status`` and ``held`` (calls that wait for the engine) are told by their owners."""

    def __init__(
        self, core: Core, *, status: Callable[[], Status], held: Callable[[], int]
    ) -> None:
        self._core = core
        self._status = status
        self._held = held
        self.tokenizers = Tokenizers(core)

    def overview(self, *, evals: bool = True) -> Overview:
        """Return everything that ``swarm watch`` shows; see ``swarm.server.service.overview``."""
        return overview(self._core, self._status(), self._votes(), held=self._held(), evals=evals)

    @property
    def traffic(self) -> Traffic:
        """Totals since the process began."""
        return self._core.traffic

    def now(self) -> float:
        """Return the server's time, unix seconds."""
        return self._core.clock.time()

    def open_episodes(self, kind: EpisodeKind) -> int:
        """Return how many episodes of a kind are being played."""
        return self._core.book.open_count(kind)

    def dropped_groups(self) -> int:
        """Return how many groups of the open step were dropped."""
        return self._core.pool.dropped

    def last_step(self) -> StepMetrics | None:
        """Return the record of the newest completed step; None before any."""
        core = self._core
        if core.configured is None or core.trained_step == 0:
            return None
        found = core.journal.step_metrics(core.trained_step - 1)
        return found[-1] if found else None

    def _votes(self) -> Votes:
        agreed, missing = self._core.consent.agreed(), self._core.consent.missing()
        return Votes(agreed=len(agreed), trainers=len(agreed) + len(missing))
