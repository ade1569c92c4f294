"""Who has to let others go first: a client that asked to be throttled and leads its fair share, and one that fails in a row.

Fair share: what active clients were granted in the step plus what is left, divided by the active clients. A throttled client
waits only while another one is *behind* its fair share and *could come* for what is left: it has an open episode, or holds a
request that the pool would take, or within ``PATIENCE_S`` it was granted or ended an episode, registered, or (having played in
the last step) saw the step begin. A client whose last ``STREAK`` episodes all failed waits while any other could come, and unless it
is alone for ``PATIENCE_S`` after each failure, so that a crash loop cannot snatch every seat; nobody waits for such a client.

Nobody waits for ever: a client that is behind and not failing never waits, every grant counts (lost ones too), and what makes a
client count as able to come ends by itself. An idle or dead client delays nobody for longer than its episodes live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from swarm.protocol.episodes import GrantRequest
from swarm.protocol.states import EpisodeKind, Role
from swarm.server.service import policies
from swarm.server.service.clock import TimerHandle
from swarm.server.service.core import Core
from swarm.server.service.groups import Pool

PATIENCE_S = 5.0
"""A client that had an episode within this is expected to ask again."""
STREAK = 3
"""Failures in a row after which a client lets others go first."""


def must_wait(
    client_id: str, granted: Mapping[str, int], left: int, rivals: Iterable[str], throttle: float
) -> bool:
    """Whether a client waits: it has ``throttle`` times its fair share, and one of ``rivals`` (active clients) has less than its own.

    ``granted``: episodes of the step a client; ``left``: episodes that could be granted now. Alone it never waits.
    """
    active = {client_id, *rivals}
    share = (left + sum(granted.get(name, 0) for name in active)) / len(active)
    if granted.get(client_id, 0) < throttle * share:
        return False
    return any(granted.get(name, 0) < share for name in active - {client_id})


class Throttle:
    """What each client was granted in the open step, by task set, and who is active."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        """``wake`` is called when time alone may have ended a wait."""
        self._core = core
        self._wake = wake
        self._pool: Pool | None = None
        self._granted: Counter[tuple[str, str]] = Counter()
        self._last_grant: dict[str, float] = {}
        self._played_before: set[tuple[str, str]] = set()
        """Clients and task sets of the step before."""
        self._timer: TimerHandle | None = None

    def granted(self, client_id: str, task_set: str) -> None:
        """Book a train grant."""
        self._enter_step()
        self._granted[client_id, task_set] += 1
        self._last_grant[client_id] = self._core.clock.monotonic()

    def delays(
        self, request: GrantRequest, held: Callable[[str], Iterable[str]], *, contested: bool
    ) -> str:
        """Return why the client has to wait; empty when not.

        ``held``: the other clients with a held request that the pool would take. ``contested``: what it would get could go to
        others as well; only that is shared out.
        """
        name, failing = request.client_id, self._fails(request.client_id)
        throttle = request.throttle if contested else None
        if throttle is None and not failing:
            return ""
        self._enter_step()
        pool = self._core.pool
        task_set = request.task_set if pool.shares else None
        rivals = {r for r in self._rivals(name, task_set, held(name)) if not self._fails(r)}
        granted, left = self._counts(task_set), policies.seats_room(pool, task_set)
        if failing and (rivals or self._just_failed(name)):
            why = "has only failed of late"
        elif throttle and must_wait(name, granted, left, rivals, throttle):
            why = f"leads its fair share of step {pool.step} ({granted[name]} episodes)"
        else:
            return ""
        self._wake_later()
        return f"client {name!r} {why}; it waits for other clients"

    def _just_failed(self, client_id: str) -> bool:
        """Whether others should get a chance to see the seat that it just lost; not when there are none."""
        others = {c.client_id for c in self._core.clients.live(Role.TRAINER)}
        others |= {name for name, _ in self._granted}
        if not any(other != client_id and not self._fails(other) for other in others):
            return False
        ended = self._core.clients.played_at(client_id)
        return ended is not None and self._core.clock.monotonic() - ended < PATIENCE_S

    def _fails(self, client_id: str) -> bool:
        return self._core.clients.streak(client_id) >= STREAK

    def _enter_step(self) -> None:
        """Begin a step at what is known of it: nothing, or what a resumed pool holds."""
        pool = self._core.pool
        if pool is not self._pool:
            self._pool = pool
            self._last_grant = {}
            self._played_before = set(self._granted)
            self._granted = Counter((e.client_id, e.task_set) for e in pool.finish_order)

    def _counts(self, task_set: str | None) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (client_id, name), count in self._granted.items():
            if task_set is None or name == task_set:
                counts[client_id] += count
        return counts

    def _rivals(self, client_id: str, task_set: str | None, held: Iterable[str]) -> set[str]:
        """Return the other clients that could come for what is left (of the task set, under a mix)."""
        since = self._core.clock.monotonic() - PATIENCE_S
        here, before = set(self._granted), self._played_before
        sets = self._sets_with_room(task_set, {name for _, name in here | before})
        playing = {e.client_id for e in self._core.book.open(EpisodeKind.TRAIN)}
        able = {name for name, of_set in here if of_set in sets}
        rivals = {name for name in able if name in playing or self._last_active(name) > since}
        if self._core.step_opened > since:
            rivals |= {name for name, of_set in before if of_set in sets}
        return (rivals | self._newcomers() | set(held)) - {client_id}

    def _sets_with_room(self, task_set: str | None, names: set[str]) -> set[str]:
        """Return which of the task sets something is left for."""
        pool = self._core.pool
        if task_set is not None:
            return {task_set} if policies.seats_room(pool, task_set) > 0 else set()
        return {n for n in names if pool.missing_of(n) > 0 or policies.may_open(pool, n)}

    def _newcomers(self) -> set[str]:
        """Return the trainers that registered just now: what they will ask for is not known yet."""
        since = self._core.clock.time() - PATIENCE_S
        live = self._core.clients.live(Role.TRAINER)
        return {c.client_id for c in live if c.registered_at > since}

    def _last_active(self, client_id: str) -> float:
        """Return when the client was last granted an episode of the step or ended one (monotonic seconds)."""
        ended = self._core.clients.played_at(client_id)
        never = float("-inf")
        return max(self._last_grant.get(client_id, never), never if ended is None else ended)

    def _wake_later(self) -> None:
        if self._timer is None:
            self._timer = self._core.clock.call_later(PATIENCE_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()
