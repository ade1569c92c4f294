"""The training configuration of one cell."""

from __future__ import annotations

from pathlib import Path

from a3r.leader.factors import Scalar, nested, path_of
from a3r.leader.goal import GoalSpec
from a3r.leader.model_files import BUILTIN, find_model
from a3r.leader.tasks import TASKS
from swarm.protocol.config import TrainConfig


def train_config(
    goal: GoalSpec, factors: dict[str, Scalar], run_name: str, goal_dir: Path
) -> TrainConfig:
    """The task's defaults, then the goal's settings, then the cell's factors. Training waits for the evaluation of version 0."""
    values: dict[str, Scalar] = dict(TASKS[goal.task].train_defaults)
    for chosen in (goal.settings, factors):
        values |= {path_of(name) or name: value for name, value in chosen.items()}
    tree = nested(values)
    model = goal.model if goal.model.startswith(BUILTIN) else str(find_model(goal.model, goal_dir))
    tree.setdefault("model", {})["path"] = model
    tree.setdefault("eval_gate", {})["at_steps"] = (0,)
    return TrainConfig.model_validate({**tree, "run_name": run_name})
