"""What an agent works on: ``Task``, and the ``TaskSet`` protocol with its simplest forms. Readers of files are in ``readers``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, cast

from swarm.client.errors import ClientUsageError

READ_LIMIT = 1_000_000
"""Items of an iterable that are read at once; more is a stream."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. ``task_id`` is what the server groups by; ``payload`` is the agent's own business."""

    task_id: str
    payload: dict[str, Any] = field(default_factory=dict[str, Any])


class TaskSet(Protocol):
    """Tasks by index. ``tasks[i]`` must be the same task whenever it is asked for."""

    def __len__(self) -> int:
        """Number of tasks."""
        ...

    def __getitem__(self, index: int, /) -> Task:
        """The task at ``index`` (0 <= index < len)."""
        ...


class ComputedTasks:
    """A task set made by a function of the index; nothing is stored."""

    def __init__(self, make: Callable[[int], Task | Mapping[str, Any]], size: int) -> None:
        """``make(i)`` returns a Task or a mapping (its ``task_id``, else the index, names it)."""
        self._make, self._size = make, size

    def __len__(self) -> int:
        """Number of tasks."""
        return self._size

    def __getitem__(self, index: int) -> Task:
        """Compute the task at ``index``."""
        if not 0 <= index < self._size:
            msg = f"task index {index} is outside 0..{self._size - 1}"
            raise IndexError(msg)
        return to_task(self._make(index), index)


class RowTasks:
    """Rows of anything with a length and an index (a data set, an array of records) as tasks, made when they are asked for."""

    def __init__(self, rows: Any, make: Callable[[Any, int], Task] | None = None) -> None:
        """``make(row, index)`` returns the task; None = ``to_task``."""
        self._rows, self._make = rows, make or to_task

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, index: int) -> Task:
        """The row at ``index`` as a task."""
        return self._make(self._rows[index], index)


def to_task(item: Any, index: int) -> Task:
    """Make a Task of a Task, a mapping (``task_id`` or ``id``, else the index) or any JSON value (``payload["value"]``)."""
    if isinstance(item, Task):
        return item
    if isinstance(item, Mapping):
        row = {str(k): v for k, v in cast("Mapping[Any, Any]", item).items()}
        name = row.get("task_id", row.get("id", index))
        return Task(str(name), row)
    return Task(str(index), {"value": item})


def as_task_set(tasks: Any, *, limit: int | None = None) -> TaskSet:
    """Read a sequence, a task set, rows by index, or an iterable (read at once, at most ``limit`` items) as a TaskSet.

    Raises:
        ClientUsageError: it is empty or too long to be read at once, it is none of these, or an id occurs twice (two tasks
            under one id would share a group).
    """
    if isinstance(tasks, Sequence):
        found = [to_task(t, i) for i, t in enumerate(cast("Sequence[Any]", tasks))]
    elif hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__"):
        found_set = _not_empty(cast("TaskSet", tasks))
        return found_set if isinstance(cast("Any", found_set)[0], Task) else RowTasks(found_set)
    elif isinstance(tasks, Iterable):
        items = islice(cast("Iterable[Any]", tasks), READ_LIMIT if limit is None else limit)
        found = [to_task(t, i) for i, t in enumerate(items)]
        if limit is None and len(found) == READ_LIMIT:
            raise ClientUsageError(
                f"The tasks do not end within {READ_LIMIT} items.",
                hint="Give TaskStream(tasks), which reads them as they are needed.",
            )
    else:
        raise ClientUsageError(
            f"A {type(tasks).__name__} is no set of tasks.",
            hint="Give a list; of a function make ComputedTasks(make, size) or TaskStream(make).",
        )
    seen: set[str] = set()
    for task in found:
        if task.task_id in seen:
            raise ClientUsageError(
                f"The task id {task.task_id!r} occurs twice.",
                hint="Give every task an id of its own; leave the ids out to number the tasks.",
            )
        seen.add(task.task_id)
    return _not_empty(found)


def _not_empty(tasks: TaskSet) -> TaskSet:
    if len(tasks) == 0:
        raise ClientUsageError("There is no task.", hint="Give at least one task.")
    return tasks
