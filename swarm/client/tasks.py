"""What an agent works on: ``Task``, the ``TaskSet`` protocol, and readers that make one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import orjson

from swarm.client.errors import ClientUsageError


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
    """Read a sequence, a task set, or an iterable (read once, at most ``limit`` items) as a TaskSet.

    Raises:
        ClientUsageError: it is empty, or an id occurs twice (two tasks under one id would share a group).
    """
    if isinstance(tasks, Sequence):
        found = [to_task(t, i) for i, t in enumerate(cast("Sequence[Any]", tasks))]
    elif hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__"):
        return _not_empty(cast("TaskSet", tasks))
    else:
        items = islice(cast("Iterable[Any]", tasks), limit)
        found = [to_task(t, i) for i, t in enumerate(items)]
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


def read_jsonl(path: str | Path) -> list[Task]:
    """Read one task a line; blank lines are skipped, ``task_id`` or ``id`` names the task, else its line number from 0.

    Raises:
        ClientUsageError: a line is not JSON (the line is named).
    """
    return list(_jsonl_lines(Path(path)))


def _jsonl_lines(path: Path) -> Iterator[Task]:
    for number, line in enumerate(path.read_bytes().splitlines()):
        if not line.strip():
            continue
        try:
            yield to_task(orjson.loads(line), number)
        except orjson.JSONDecodeError as error:
            raise ClientUsageError(
                f"Line {number + 1} of {str(path)!r} is not JSON: {error}.",
                hint="Write one JSON value a line.",
            ) from error
