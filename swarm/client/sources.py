"""Where a run's episodes come from: what to ask the server for now, and what to tell it of the order of tasks.

Three kinds: ``PlannedSource`` computes tasks from the pool (any task by index), ``OrderedSource`` takes them from a stream one
after the other, and ``SharedSource`` lets the server's queue choose, so that several clients work through one list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from swarm.client.agents import in_thread
from swarm.client.errors import ClientUsageError
from swarm.client.planning import Planner, groups_to_open
from swarm.client.streams import TaskStream
from swarm.client.tasks import Task, TaskSet
from swarm.protocol.clients import TaskCursor
from swarm.protocol.episodes import Grant
from swarm.protocol.pool import PoolSnapshot, TaskQueue


def check_seed(cursor: TaskCursor | None, data_seed: int, client_id: str) -> None:
    """Refuse to go on in another order than the one that was begun.

    Raises:
        ClientUsageError: the cursor is of another data seed.
    """
    if cursor is not None and cursor.data_seed != data_seed:
        raise ClientUsageError(
            f"Client {client_id!r} went through {cursor.task_set!r} with data_seed={cursor.data_seed} and would go on with {data_seed}.",
            hint=f"Use data_seed={cursor.data_seed}, or resume=False to begin anew.",
        )


class TaskSource(Protocol):
    """The tasks of one ``run_episodes``."""

    @property
    def exhausted(self) -> bool:
        """Whether no new task will ever come."""
        ...

    @property
    def queue(self) -> TaskQueue | None:
        """What the server must know before the first request; None = nothing."""
        ...

    async def begin(self, cursor: TaskCursor | None, pool: PoolSnapshot) -> None:
        """Go to where ``cursor`` stands (None: the beginning). Called once, before the first plan."""
        ...

    async def plan(self, pool: PoolSnapshot, repeat: int | None) -> list[Task]:
        """Tasks of the episodes to ask for now, in order, one entry an episode."""
        ...

    def cursor(self, task: Task, step: int) -> TaskCursor | None:
        """What to tell the server with the request for ``task``; None = nothing new."""
        ...

    def granted(self, task: Task, grant: Grant) -> Task:
        """Note that an episode of ``task`` was granted; returns the task to play."""
        ...


class PlannedSource:
    """Any task by its index; the order is a pure function of data seed, step and slot, so there is no place to keep."""

    exhausted = False
    queue = None

    def __init__(self, planner: Planner) -> None:
        """Ask for what ``planner`` plans."""
        self._planner = planner
        self._told = -1
        """Step that the server was last told of."""

    async def begin(self, cursor: TaskCursor | None, pool: PoolSnapshot) -> None:
        """Nothing to go to."""

    async def plan(self, pool: PoolSnapshot, repeat: int | None) -> list[Task]:
        """As the planner says."""
        return self._planner.plan(pool, repeat)

    def cursor(self, task: Task, step: int) -> TaskCursor | None:
        """The seed and the step, once a step."""
        if step == self._told:
            return None
        planner = self._planner
        return TaskCursor(task_set=planner.task_set, data_seed=planner.data_seed, step=step)

    def granted(self, task: Task, grant: Grant) -> Task:
        """The task that was asked for."""
        self._told = grant.step
        return task


class OrderedSource:
    """A stream: each task is taken once, in order; those of the open step stay known, in case a member is asked for again."""

    queue = None

    def __init__(self, stream: TaskStream, task_set: str, data_seed: int) -> None:
        """Read nothing yet."""
        self._tasks: Iterator[Task] = iter(stream)
        self._task_set, self._data_seed = task_set, data_seed
        self._ahead: deque[Task] = deque()
        """Read, and no member granted yet."""
        self._open: dict[str, Task] = {}
        """Taken in the open step, by id."""
        self._step = -1
        self._position = 0
        self._ended = False

    @property
    def exhausted(self) -> bool:
        """Whether the stream ended and all its tasks were taken."""
        return self._ended and not self._ahead

    async def begin(self, cursor: TaskCursor | None, pool: PoolSnapshot) -> None:
        """Read past the tasks that were taken; those of the open step are kept.

        Raises:
            ClientUsageError: the stream ends before the cursor.
        """
        taken = cursor.position if cursor is not None else 0
        names = self._names(pool)
        self._open = await in_thread(lambda: self._pass(taken, names))
        self._step = pool.step
        if self._position < taken:
            raise ClientUsageError(
                f"The server knows {taken} tasks of {self._task_set!r} as taken; the stream has only {self._position}.",
                hint="Give the stream that was used before, or resume=False to begin anew.",
            )

    async def plan(self, pool: PoolSnapshot, repeat: int | None) -> list[Task]:
        """Missing members of tasks taken in this step, then the next tasks of the stream."""
        if pool.step != self._step:
            self._step, names = pool.step, self._names(pool)
            self._open = {name: task for name, task in self._open.items() if name in names}
        plan = [
            task
            for wanted in pool.wanted
            if wanted.task_set == self._task_set
            and (task := self._open.get(wanted.task_id)) is not None
            for _ in range(wanted.missing)
        ]
        need = groups_to_open(pool, self._task_set)
        if len(self._ahead) < need and not self._ended:
            more = need - len(self._ahead)
            found = await in_thread(lambda: list(islice(self._tasks, more)))
            self._ended = len(found) < more
            self._ahead.extend(found)
        for task in islice(self._ahead, need):
            plan.extend([task] * (repeat or pool.repeat))
        return plan

    def cursor(self, task: Task, step: int) -> TaskCursor | None:
        """One further, with the first member of a new task."""
        if not self._ahead or task is not self._ahead[0]:
            return None
        return TaskCursor(
            task_set=self._task_set,
            data_seed=self._data_seed,
            position=self._position + 1,
            step=step,
        )

    def granted(self, task: Task, grant: Grant) -> Task:
        """The task that was asked for; with its first member it is taken."""
        if self._ahead and task is self._ahead[0]:
            self._open[task.task_id] = self._ahead.popleft()
            self._position += 1
        return task

    def _names(self, pool: PoolSnapshot) -> set[str]:
        prefix = f"{self._task_set}/"
        return {name.removeprefix(prefix) for name in pool.task_ids if name.startswith(prefix)}

    def _pass(self, count: int, names: set[str]) -> dict[str, Task]:
        kept: dict[str, Task] = {}
        for task in islice(self._tasks, count):
            self._position += 1
            if task.task_id in names:
                kept[task.task_id] = task
        return kept


ANY_TASK = Task("")
"""An episode of whichever task the server's queue gives."""


class SharedSource:
    """The server's queue: several clients with the same list work through it together."""

    def __init__(self, tasks: TaskSet, task_set: str, data_seed: int, epochs: int | None) -> None:
        """All ids are read once, to give the queue to the server and to find what it gives back."""
        self._tasks, self._task_set, self._data_seed = tasks, task_set, data_seed
        self.exhausted = False
        """As the server said at the last plan."""
        self._index = {tasks[i].task_id: i for i in range(len(tasks))}
        self.queue: TaskQueue | None = TaskQueue(
            task_ids=list(self._index), seed=data_seed, epochs=epochs
        )

    async def begin(self, cursor: TaskCursor | None, pool: PoolSnapshot) -> None:
        """The server's queue knows where it stands."""

    async def plan(self, pool: PoolSnapshot, repeat: int | None) -> list[Task]:
        """As many episodes as the pool has room for, whatever their tasks."""
        self.exhausted = self._task_set in pool.exhausted_queues
        missing = sum(w.missing for w in pool.wanted if w.task_set == self._task_set)
        new_groups = 0 if self.exhausted else groups_to_open(pool, self._task_set)
        return [ANY_TASK] * (missing + new_groups * (repeat or pool.repeat))

    def cursor(self, task: Task, step: int) -> TaskCursor | None:
        """None: the queue is the cursor."""
        return None

    def granted(self, task: Task, grant: Grant) -> Task:
        """The task that the server chose.

        Raises:
            ClientUsageError: this client does not have it.
        """
        index = self._index.get(grant.task_id)
        if index is None:
            raise ClientUsageError(
                f"The shared queue of {self._task_set!r} gave task {grant.task_id!r}, which this client does not have.",
                hint="Start all clients of one task set with the same tasks.",
            )
        return self._tasks[index]
