"""Who agreed to take the open step (policies C4 and C5).

An agreement is about one step: it stands until that step is taken, also when its client restarts or goes, and also over a
restart of the server (events have it).
"""

from __future__ import annotations

from swarm.protocol.states import CollectionPolicy, Role
from swarm.server.service.clients import Clients
from swarm.server.service.clock import Clock

AGREED = "agreed"
"""Kind of the event that records an agreement."""


class Consent:
    """The agreements of the open step, and of the last one, so that a repeat gets the answer that stood."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._step = (None, -1)
        self._agreed: set[str] = set()
        self._last: tuple[tuple[str | None, int], frozenset[str]] = ((None, -1), frozenset())
        self._not_before: float | None = 0.0
        """C4 waits until then (monotonic seconds); None = for ``serving``."""

    def open(self, incarnation: str, step: int) -> None:
        """Begin a step that nobody agreed to. The same step again changes nothing."""
        if self._step != (incarnation, step):
            self._last = (self._step, frozenset(self._agreed))
            self._step = (incarnation, step)
            self._agreed = set()

    def restarted(self) -> None:
        """Let C4 wait for trainers to come back: the server restarted, and no lease survives that."""
        self._not_before = None

    def serving(self) -> None:
        """Note that the engine serves: after a restart the trainers have one lease from now on."""
        if self._not_before is None:
            self._not_before = self._clock.monotonic() + self._clients.lease_s

    def came_due(self) -> bool:
        """Whether the wait for trainers ended since the last look."""
        waited = self._not_before
        if not waited or self._clock.monotonic() < waited:
            return False
        self._not_before = 0.0
        return True

    def add(self, client_id: str) -> None:
        """Take an agreement to the open step; safe to repeat."""
        self._agreed.add(client_id)

    def agreed(self) -> list[str]:
        """Return who agreed to the open step, sorted."""
        return sorted(self._agreed)

    def agreed_last(self, incarnation: str, step: int) -> frozenset[str]:
        """Return who had agreed to ``step`` when it was taken; empty when it is not the step before the open one."""
        return self._last[1] if self._last[0] == (incarnation, step) else frozenset()

    def missing(self) -> list[str]:
        """Return the trainers with a live lease that have not agreed, sorted."""
        return sorted(self._trainers() - self._agreed)

    def given(self, policy: CollectionPolicy) -> bool:
        """Whether the agreements suffice: C5 any, C4 of every trainer with a live lease and of one at least."""
        if policy is CollectionPolicy.C5:
            return bool(self._agreed)
        if policy is not CollectionPolicy.C4 or self._waits():
            return False
        trainers = self._trainers()
        return bool(trainers) and trainers <= self._agreed

    def _waits(self) -> bool:
        return self._not_before is None or self._clock.monotonic() < self._not_before

    def _trainers(self) -> set[str]:
        return {client.client_id for client in self._clients.live(Role.TRAINER)}
