"""The tasks that ship with a3r, defined once for leader and worker; the games themselves are ``swarm.tasks``' own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash
from swarm.client.tasks import Task
from swarm.protocol.records import EpisodeTrace
from swarm.tasks import calculator


@dataclass(frozen=True, slots=True)
class ScoredTask:
    """A task's held-out items and how they are scored."""

    name: str
    module: ModuleType
    """Holds the scorer."""
    items: Callable[[int, int], list[Task]]
    """``items(count, seed)``: the held-out list."""
    items_hash: Callable[[list[Task]], str]
    score: Callable[[Task, EpisodeTrace], float]
    prompt: Callable[[Task], dict[str, Any]]
    """The part of an item that the agent may see."""

    def source_hash(self) -> str:
        """sha256 of the scoring code's source file."""
        return bytes_hash(inspect.getsource(self.module).encode())

    def item_set_hash(self, count: int, seed: int) -> str:
        """Hash of the held-out list of that size and seed."""
        return self.items_hash(self.items(count, seed))


def _operands(task: Task) -> dict[str, Any]:
    return {"operands": task.payload["operands"]}


SCORED_TASKS: dict[str, ScoredTask] = {
    "calculator": ScoredTask(
        name="calculator",
        module=calculator,
        items=calculator.held_out,
        items_hash=calculator.item_set_hash,
        score=calculator.score,
        prompt=_operands,
    )
}


def scored_task(name: str) -> ScoredTask:
    """The task of that name.

    Raises:
        BlueprintError: there is none.
    """
    if name not in SCORED_TASKS:
        near = get_close_matches(name, SCORED_TASKS, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(SCORED_TASKS)}."
        raise BlueprintError(f"This host has no task {name!r}.", hint=hint)
    return SCORED_TASKS[name]
