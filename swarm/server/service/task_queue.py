"""Shared task queues: one order of tasks for a task set that all its clients take from. Kept by the journal, for one run.

A group opened from a queue belongs to nobody: its missing seats go to whichever client asks next. A task whose group was lost or
left over comes back, ``RETURNS_LIMIT`` times at most, before the order goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from swarm.protocol.errors import NotFoundError, RequestError
from swarm.protocol.ordering import in_epochs
from swarm.protocol.pool import TaskQueue, TaskQueueInfo
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import QueuePlace, QueueRecord
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)

RETURNS_LIMIT = 2
"""A task comes back this often; then it is passed over until the next epoch, so that one that always fails holds nobody up."""


@dataclass(slots=True)
class _Queue:
    record: QueueRecord
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = frozenset(self.record.task_ids)

    @property
    def ordered(self) -> int | None:
        """Groups that the order has; None = without end."""
        record = self.record
        return None if record.epochs is None else record.epochs * len(record.task_ids)

    @property
    def exhausted(self) -> bool:
        """Whether no group can be opened from it."""
        place, ordered = self.record.place, self.ordered
        return not place.again and ordered is not None and place.handed_out >= ordered

    def info(self) -> TaskQueueInfo:
        """Return the wire form."""
        record = self.record
        return TaskQueueInfo(
            name=record.name,
            size=len(record.task_ids),
            seed=record.seed,
            epochs=record.epochs,
            handed_out=record.place.handed_out,
            waiting_again=len(record.place.again),
            exhausted=self.exhausted,
        )


@dataclass(frozen=True, slots=True)
class Taking:
    """The next task of a queue, and where the queue stands once a group of it is open."""

    name: str
    task_id: str
    place: QueuePlace


class TaskQueues:
    """The queues of the newest run by name of their task set. What a method changes is in the journal when it returns."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._incarnation: str | None = None
        self._queues: dict[str, _Queue] = {}

    def put(self, name: str, queue: TaskQueue) -> TaskQueueInfo:
        """Set the queue of a task set; the same again changes nothing, and other ``epochs`` only lengthen or shorten it.

        Another list (or seed) begins at its start: it replaces what was not handed out, and open groups go on.

        Raises:
            StateError: No run to keep it for.
            RequestError: An id is empty or occurs twice.
        """
        _check_ids(queue.task_ids)
        old = self._here().get(name)
        record = QueueRecord(
            name=name, task_ids=list(queue.task_ids), seed=queue.seed, epochs=queue.epochs
        )
        if old is not None and (old.record.task_ids, old.record.seed) == (
            record.task_ids,
            record.seed,
        ):
            if old.record.epochs == record.epochs:
                return old.info()
            record.place = old.record.place
        self._journal.record_queue(record)
        hit(Point.QUEUE_RECORDED)
        self._queues[name] = _Queue(record)
        return self._queues[name].info()

    def infos(self) -> list[TaskQueueInfo]:
        """Return where each queue stands, by name."""
        queues = self._here()
        return [queues[name].info() for name in sorted(queues)]

    def exhausted(self) -> list[str]:
        """Return the names of the queues that no group can be opened from any more."""
        return [name for name, queue in sorted(self._here().items()) if queue.exhausted]

    def next(self, name: str) -> Taking | None:
        """Return the task that the next group is opened for; None when the queue is exhausted. Changes nothing.

        Raises:
            NotFoundError: The task set has no queue.
        """
        queue = self._need(name)
        if queue.exhausted:
            return None
        record, place = queue.record, queue.record.place
        if place.again:
            moved = msgspec.structs.replace(place, again=place.again[1:])
            return Taking(name, place.again[0], moved)
        index = in_epochs(place.handed_out, len(record.task_ids), record.seed)
        starts_epoch = (place.handed_out + 1) % len(record.task_ids) == 0
        moved = msgspec.structs.replace(
            place,
            handed_out=place.handed_out + 1,
            returns={} if starts_epoch else place.returns,
        )
        return Taking(name, record.task_ids[index], moved)

    def require(self, name: str) -> None:
        """Check that the task set has a queue.

        Raises:
            NotFoundError: It has none.
        """
        self._need(name)

    def record(self, taking: Taking) -> None:
        """Write that the group of ``taking`` is open; ``taken`` makes it so in memory once that is certain."""
        self.record_places({taking.name: taking.place})

    def taken(self, taking: Taking) -> None:
        """Go on behind ``taking``, which is recorded."""
        self.moved({taking.name: taking.place})

    def put_back(self, tasks: Iterable[tuple[str, str]]) -> None:
        """Let tasks ``(task_set, task_id)`` of shared groups that trained nothing come again; unknown ones are ignored."""
        moved = self.with_again(tasks)
        self.record_places(moved)
        self.moved(moved)

    def with_again(self, tasks: Iterable[tuple[str, str]]) -> dict[str, QueuePlace]:
        """Return where each queue concerned stands once ``tasks`` were put back. Changes nothing."""
        moved: dict[str, QueuePlace] = {}
        for name, task_id in tasks:
            queue = self._here().get(name)
            if queue is None or task_id not in queue.ids:
                continue
            place = moved.get(name, queue.record.place)
            count = place.returns.get(task_id, 0) + 1
            if count > RETURNS_LIMIT:
                log.warning(
                    "Task %r of queue %r came back too often and is passed over", task_id, name
                )
                continue
            returns = {**place.returns, task_id: count}
            moved[name] = msgspec.structs.replace(
                place, again=(*place.again, task_id), returns=returns
            )
        return moved

    def record_places(self, places: Mapping[str, QueuePlace]) -> None:
        """Write where queues stand; ``moved`` makes it so in memory once that is certain."""
        for name, place in places.items():
            self._journal.move_queue(name, place)

    def moved(self, places: Mapping[str, QueuePlace]) -> None:
        """Go on from ``places``, which are recorded."""
        for name, place in places.items():
            self._need(name).record.place = place

    def _need(self, name: str) -> _Queue:
        queue = self._here().get(name)
        if queue is None:
            raise NotFoundError(
                f"Task set {name!r} has no shared queue, so a request without task_id has nothing to take.",
                hint=f"PUT /swarm/task_sets/{name} first (run_episodes(shared=True) does), or name a task_id.",
            )
        return queue

    def _here(self) -> dict[str, _Queue]:
        """Return the queues of the newest run; a new run begins without any."""
        if self._journal.incarnation != self._incarnation:
            self._queues = {record.name: _Queue(record) for record in self._journal.queues()}
            self._incarnation = self._journal.incarnation
        return self._queues


def _check_ids(task_ids: list[str]) -> None:
    seen: set[str] = set()
    for task_id in task_ids:
        if not task_id or task_id in seen:
            what = f"occurs twice: {task_id!r}" if task_id else "is empty"
            raise RequestError(
                f"A task id of the queue {what}.", hint="Give every task an id of its own."
            )
        seen.add(task_id)
