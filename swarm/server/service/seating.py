"""Which seat of the open step a train request gets: one of the task it names, or one that the shared queue chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import RequestError
from swarm.protocol.states import EpisodeKind
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group
from swarm.server.service.task_queue import Taking
from swarm.server.service.throttle import Throttle


@dataclass(slots=True)
class Seat:
    """A free seat of ``group``. ``opened``: the group was opened for it; ``taking``: with that task of the shared queue."""

    group: Group
    opened: bool = False
    taking: Taking | None = None


class Seating:
    """Finds seats. ``held`` are the requests that wait: a throttled client only waits for those that could be served."""

    def __init__(
        self, core: Core, held: Callable[[], Iterable[GrantRequest]], wake: Callable[[], None]
    ) -> None:
        self._core = core
        self._held = held
        self._throttle = Throttle(core, wake)

    def check(self, request: GrantRequest) -> None:
        """Refuse what can never be granted.

        Raises:
            RequestError: An evaluation without a task.
            NotFoundError: A train request without a task, for a task set without a shared queue.
        """
        if request.task_id:
            return
        if request.kind is EpisodeKind.EVAL:
            raise RequestError(
                "An eval episode needs a task_id.", hint="Only train episodes take from a queue."
            )
        if self._core.configured is not None:
            self._core.queues.require(request.task_set)

    def find(self, request: GrantRequest) -> Seat | str:
        """Return a free seat, opening a group when it takes one, or why there is none now.

        The caller then records the episode and calls ``sit``, or ``undo`` when it could not.

        Raises:
            NotFoundError: The request leaves the task to a shared queue that does not exist (any more).
        """
        reason, free = self._look(request)
        if reason:
            return reason
        # A share is of what others could take as well: new groups, and seats of shared ones.
        contested = free is None or not request.task_id
        reason = self._throttle.delays(request, self._servable, contested=contested)
        if reason:
            return reason
        if free is not None:
            return Seat(free)
        return self._open(request)

    def record(self, seat: Seat) -> None:
        """Write to the journal what a seat changes besides its episode; call it in the same transaction."""
        if seat.taking is not None:
            self._core.queues.record(seat.taking)

    def sit(self, seat: Seat, episode: Episode) -> None:
        """Put an episode that is recorded on its seat."""
        self._core.pool.seat(seat.group, episode)
        if seat.taking is not None:
            self._core.queues.taken(seat.taking)
        self._throttle.granted(episode.client_id, episode.task_set)

    def undo(self, seat: Seat) -> None:
        """Give a seat back whose episode could not be recorded."""
        if seat.opened:
            self._core.pool.forget(seat.group)

    def _look(self, request: GrantRequest) -> tuple[str, Group | None]:
        """Return why the pool takes no such episode now, and a group with a free seat for it. Changes nothing."""
        core, task_set = self._core, request.task_set
        if request.task_id:
            free = core.pool.unfilled(task_set, request.task_id, request.code_hash)
        else:
            free = core.pool.unfilled_shared(task_set, request.code_hash)
        reason = policies.refusal(core.pool, task_set, free)
        if (
            not reason
            and free is None
            and not request.task_id
            and core.queues.next(task_set) is None
        ):
            reason = f"the shared queue of {task_set!r} is exhausted"
        return reason, free

    def _open(self, request: GrantRequest) -> Seat:
        core = self._core
        taking = None if request.task_id else core.queues.next(request.task_set)
        task_id = taking.task_id if taking is not None else request.task_id
        group = core.pool.open_group(request.task_set, task_id, request.code_hash)
        group.shared = taking is not None
        return Seat(group, opened=True, taking=taking)

    def _servable(self, client_id: str) -> set[str]:
        """Return the other clients with a held request that the pool would take now."""
        found: set[str] = set()
        for other in self._held():
            name = other.client_id
            if other.kind is not EpisodeKind.TRAIN or name == client_id or name in found:
                continue
            if self._of_this_step(other) and not self._look(other)[0]:
                found.add(name)
        return found

    def _of_this_step(self, request: GrantRequest) -> bool:
        return request.step is None or request.step == self._core.step
