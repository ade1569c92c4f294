"""The tasks that ship with a3r: held-out items, scoring code, training defaults and the client template of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from a3r.core.hashing import bytes_hash
from swarm.client.tasks import Task
from swarm.tasks import calculator


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """What the leader knows of a task."""

    name: str
    module: ModuleType
    """Holds the scorer."""
    items: Callable[[int, int], list[Task]]
    """``items(count, seed)``: the held-out list."""
    items_hash: Callable[[list[Task]], str]
    template: str
    """Folder of ``a3r/leader/templates`` that the client is generated from."""
    train_defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By dotted path of ``TrainConfig``; a goal's settings win."""
    protocol: str = ""
    """How the metric is measured, in words."""

    def source_hash(self) -> str:
        """sha256 of the scoring code's source file."""
        return bytes_hash(inspect.getsource(self.module).encode())

    def item_set_hash(self, count: int, seed: int) -> str:
        """Hash of the held-out list of that size and seed."""
        return self.items_hash(self.items(count, seed))


TASKS: dict[str, TaskDefinition] = {
    "calculator": TaskDefinition(
        name="calculator",
        module=calculator,
        items=calculator.held_out,
        items_hash=calculator.item_set_hash,
        template="calculator",
        train_defaults={"sampling.max_response_tokens": 16, "checkpoint.every_steps": 10},
        protocol=(
            "mean reward over a fixed list of held-out problems that training never sees, one sampled game each at "
            "temperature 1, scored from the server's own trace by a process that the client can not reach"
        ),
    ),
}
