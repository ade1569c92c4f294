"""The settings of one cell, each put where it belongs: training configuration, client, limits, resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from a3r.blueprints.model import EnvironmentSpec, Limits, Resources, SandboxSpec
from a3r.leader.factors import ARGUMENTS, CELL_NAMES, Scalar, in_training, nested, path_of
from a3r.leader.goal import GoalSpec
from a3r.leader.model_files import BUILTIN, find_model
from a3r.leader.tasks import TASKS
from swarm.protocol.config import TrainConfig

PATIENCE: dict[str, dict[str, float]] = {
    "verl": {"max_time_s": 86_400, "first_step_deadline_s": 3_600, "stall_deadline_s": 3_600},
}
"""Limits by engine, where a blueprint's own defaults would end what is well: a cluster boots and steps in minutes."""


@dataclass(frozen=True)
class CellSettings:
    """What one cell is made of. Later ones win: the task's defaults, the goal's settings, the cell's factors."""

    task: str
    model: str
    """As the goal names it."""
    training: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Dotted path of ``TrainConfig`` -> value."""
    arguments: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """For the client, besides what the campaign itself gives it."""
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    """Of the client."""
    server_environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    limits: Limits = field(default_factory=Limits)
    resources: Resources = field(default_factory=Resources)


def cell_settings(goal: GoalSpec, factors: dict[str, Scalar]) -> CellSettings:
    """Where each default, setting and factor of a cell goes.

    Raises:
        pydantic.ValidationError: a value out of range; ``a3r.leader.goal_rules`` finds it before.
    """
    chosen: dict[str, Any] = {path_of(k) or k: v for k, v in goal.settings.items()}
    chosen |= goal.assigned(factors)
    task = str(chosen.get("task", goal.task))
    defaults = dict(TASKS[task].train_defaults) if task in TASKS else {}
    training = {**defaults, **{k: v for k, v in chosen.items() if in_training(k)}}
    outside = {k: v for k, v in chosen.items() if not in_training(k) and k not in CELL_NAMES}
    tree = nested({k: v for k, v in outside.items() if not k.startswith(ARGUMENTS)})
    client: dict[str, Any] = tree.get("client", {})
    python = {"kind": "python", "python": goal.python} if goal.python else {}
    return CellSettings(
        task=task,
        model=str(chosen.get("model", goal.model)),
        training=training,
        arguments={
            k.removeprefix(ARGUMENTS): v for k, v in outside.items() if k.startswith(ARGUMENTS)
        },
        environment=EnvironmentSpec.model_validate({**python, **client.get("environment", {})}),
        server_environment=EnvironmentSpec.model_validate(
            tree.get("server", {}).get("environment", {})
        ),
        sandbox=SandboxSpec.model_validate(client.get("sandbox", {})),
        limits=Limits.model_validate(
            {**PATIENCE.get(str(training.get("engine")), {}), **tree.get("limits", {})}
        ),
        resources=Resources.model_validate(tree.get("resources", {})),
    )


def training_tree(cell: CellSettings) -> dict[str, Any]:
    """The cell's part of a ``TrainConfig``, by sections."""
    return nested(dict(cell.training))


def train_config(
    goal: GoalSpec, factors: dict[str, Scalar], run_name: str, goal_dir: Path
) -> TrainConfig:
    """The training configuration of one cell. Training waits for the evaluation of version 0 and for the declared ones."""
    cell = cell_settings(goal, factors)
    tree = training_tree(cell)
    name = cell.model
    model = name if name.startswith(BUILTIN) else str(find_model(name, goal_dir))
    tree.setdefault("model", {})["path"] = model
    tree.setdefault("eval_gate", {})["at_steps"] = (0, *goal.evaluations)
    return TrainConfig.model_validate({**tree, "run_name": run_name})


def rounds_of(goal: GoalSpec) -> tuple[str, ...]:
    """Names of a run's held-out rounds in the order that they are played."""
    return ("initial", *(f"step-{k}" for k in goal.evaluations), "final")
