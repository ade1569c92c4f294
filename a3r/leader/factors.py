"""Names of factors and settings, and the place in a blueprint that each one means.

A goal may use the field's short names (``train_batch_size``), any dotted path of ``TrainConfig`` (``algorithm.clip_high``), the
cell's ``model`` and ``task``, and blueprint fields outside the training configuration: ``client.arguments.<name>`` (limits of the
environment, for example), ``client.environment.<field>``, ``client.sandbox.<field>``, ``server.environment.<field>``,
``limits.<field>``, ``resources.<field>``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from a3r.blueprints.model import EnvironmentSpec, Limits, Resources, SandboxSpec
from swarm.protocol.config import TrainConfig

Scalar = bool | int | float | str

KNOWN_NAMES: dict[str, str] = {
    "train_batch_size": "batch.tasks",
    "batch_size": "batch.tasks",
    "group_size": "batch.repeat",
    "max_response_tokens": "sampling.max_response_tokens",
    "max_response_length_in_one_turn": "sampling.max_response_tokens",
    "learning_rate": "optimizer.lr",
    "ppo_epochs": "algorithm.epochs",
    "minibatches": "algorithm.minibatches",
    "task_mix": "batch.mix",
    "steps": "stop_at_step",
    "max_steps": "stop_at_step",
    "gpus": "resources.gpus",
}
SHORT_NAMES: dict[str, str] = {
    "batch.tasks": "b",
    "batch.repeat": "n",
    "sampling.max_response_tokens": "cap",
    "optimizer.lr": "lr",
    "stop_at_step": "steps",
}
"""For the names of blueprints."""
RESERVED = frozenset(
    {
        "seed",
        "run_name",
        "model.path",
        "eval_gate.at_steps",
        "client.arguments.held_out_items",
        "client.arguments.held_out_seed",
    }
)
"""Set by the campaign itself: the run's seed, the blueprint's name, the goal's model, evaluation rounds and items."""
CELL_NAMES = frozenset({"model", "task"})
"""What a cell is made of besides settings; a goal's own keys of these names hold when no factor says otherwise."""
ARGUMENTS = "client.arguments."
"""Of the client: whatever it reads; a value that it does not read changes nothing."""
OUTSIDE: dict[str, type[BaseModel]] = {
    "client.environment.": EnvironmentSpec,
    "client.sandbox.": SandboxSpec,
    "server.environment.": EnvironmentSpec,
    "limits.": Limits,
    "resources.": Resources,
}
"""Sections of a blueprint besides the training configuration, by the beginning of their paths."""


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found += _paths(annotation, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


ALL_PATHS: tuple[str, ...] = (
    *_paths(TrainConfig),
    *(path for prefix, model in OUTSIDE.items() for path in _paths(model, prefix)),
    *sorted(CELL_NAMES),
)


def path_of(name: str) -> str | None:
    """The path that a factor or setting names; None when there is no such thing."""
    path = KNOWN_NAMES.get(name, name)
    if path.startswith(ARGUMENTS) and path != ARGUMENTS:
        return path
    return path if path in ALL_PATHS else None


def in_training(path: str) -> bool:
    """Whether a path (of ``path_of``) lies in the training configuration."""
    return path not in CELL_NAMES and not path.startswith((ARGUMENTS, *OUTSIDE))


def suggestion(name: str) -> str:
    """``did you mean 'x'?`` for the nearest known name, else the short names that exist."""
    near = get_close_matches(name, [*KNOWN_NAMES, *ALL_PATHS], n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return (
        f"known names: {', '.join(KNOWN_NAMES)}, model, task, every dotted path of the swarm's training configuration, "
        f"{ARGUMENTS}<name>, and fields of {', '.join(p.removesuffix('.') for p in OUTSIDE)}"
    )


def short_label(name: str, value: Scalar) -> str:
    """``b16``, ``cap10``; for other paths the last part of the name and the value."""
    path = path_of(name) or name
    label = SHORT_NAMES.get(path, path.rsplit(".", 1)[-1].replace("_", ""))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return label + "".join(c if c.isalnum() or c in ".+" else "-" for c in text)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """``{"batch.tasks": 4}`` (or known names) as ``{"batch": {"tasks": 4}}``."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = (path_of(name) or name).split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return tree


def refusal(name: str, value: object) -> str | None:
    """Why the section at this path refuses this value; None when it is fine. The type of a number is not converted.

    Models and tasks are not looked up here, and a client's argument may be anything that JSON holds.
    """
    path = path_of(name) or name
    if path.startswith(ARGUMENTS) or path in CELL_NAMES:
        return None
    prefix, section = _section(path)
    # Below a prefix no name is short for another one: ``gpus`` of ``resources.gpus`` is a field there.
    tree = (
        nested({f"below.{path.removeprefix(prefix)}": value})["below"]
        if prefix
        else nested({path: value})
    )
    # Sequences and words must be converted: a list is no tuple, a word is no enum member.
    strict = isinstance(value, (bool, int, float))
    try:
        section.model_validate(tree, strict=strict)
    except ValidationError as error:
        return "; ".join(dict.fromkeys(e["msg"].lower() for e in error.errors()))
    return None


def choices(name: str) -> tuple[str, ...]:
    """The closed set that a path takes, as text; empty when it is not closed."""
    path = path_of(name) or name
    if path.startswith(ARGUMENTS) or path in CELL_NAMES:
        return ()
    prefix, model = _section(path)
    found: Any = model
    for part in path.removeprefix(prefix).split("."):
        fields: Any = getattr(found, "model_fields", {})
        if part not in fields:
            return ()
        found = cast("type[BaseModel]", found).model_fields[part].annotation
    return tuple(str(a) for a in get_args(found) if isinstance(a, str))


def _section(path: str) -> tuple[str, type[BaseModel]]:
    """Beginning of the path and the model below it; ``("", TrainConfig)`` inside the training configuration."""
    for prefix, model in OUTSIDE.items():
        if path.startswith(prefix):
            return prefix, model
    return "", TrainConfig
