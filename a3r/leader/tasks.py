"""What the leader adds to a shipped task: training defaults, the client's template, the metric in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from a3r.blueprints.tasks import SCORED_TASKS, ScoredTask


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """What the leader knows of a task."""

    scored: ScoredTask
    """Items and scorer; the worker's evaluator has the same object."""
    template: str
    """Folder of ``a3r/leader/templates`` that the client is generated from."""
    train_defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By dotted path of ``TrainConfig``; a goal's settings win."""
    protocol: str = ""
    """How the metric is measured, in words."""


TASKS: dict[str, TaskDefinition] = {
    "calculator": TaskDefinition(
        scored=SCORED_TASKS["calculator"],
        template="calculator",
        train_defaults={"sampling.max_response_tokens": 16, "checkpoint.every_steps": 10},
        protocol=(
            "mean reward over a fixed list of held-out problems that training never sees, one sampled game each at "
            "temperature 1, scored from the server's own trace by a process that the client can not reach"
        ),
    ),
}
