"""Names of factors and settings, and the place in the training configuration that each one means.

A goal may use the field's short names (``train_batch_size``) or any dotted path of ``TrainConfig`` (``algorithm.clip_high``).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from swarm.protocol.config import TrainConfig

Scalar = bool | int | float | str

KNOWN_NAMES: dict[str, str] = {
    "train_batch_size": "batch.tasks",
    "group_size": "batch.repeat",
    "max_response_tokens": "sampling.max_response_tokens",
    "learning_rate": "optimizer.lr",
    "steps": "stop_at_step",
}
SHORT_NAMES: dict[str, str] = {
    "batch.tasks": "b",
    "batch.repeat": "n",
    "sampling.max_response_tokens": "cap",
    "optimizer.lr": "lr",
    "stop_at_step": "steps",
}
"""For the names of blueprints."""
RESERVED = frozenset({"seed", "run_name", "model.path", "eval_gate.at_steps"})
"""Set by the campaign itself: the run's seed, the blueprint's name, the goal's model, the evaluation at version 0."""


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found += _paths(annotation, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


ALL_PATHS: tuple[str, ...] = tuple(_paths(TrainConfig))


def path_of(name: str) -> str | None:
    """The dotted ``TrainConfig`` path that a factor or setting names; None when there is no such thing."""
    path = KNOWN_NAMES.get(name, name)
    return path if path in ALL_PATHS else None


def suggestion(name: str) -> str:
    """``did you mean 'x'?`` for the nearest known name, else the short names that exist."""
    near = get_close_matches(name, [*KNOWN_NAMES, *ALL_PATHS], n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known names: {', '.join(KNOWN_NAMES)}, and every dotted path of the swarm's training configuration"


def short_label(name: str, value: Scalar) -> str:
    """``b16``, ``cap10``; for other paths the last part of the name and the value."""
    path = path_of(name) or name
    label = SHORT_NAMES.get(path, path.rsplit(".", 1)[-1].replace("_", ""))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return label + "".join(c if c.isalnum() or c in ".+" else "-" for c in text)


def nested(values: dict[str, Scalar]) -> dict[str, Any]:
    """``{"batch.tasks": 4}`` (or known names) as ``{"batch": {"tasks": 4}}``."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = (path_of(name) or name).split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return tree


def refusal(name: str, value: Scalar) -> str | None:
    """Why ``TrainConfig`` refuses this value at this path; None when it is fine. The value's type is not converted."""
    try:
        TrainConfig.model_validate(nested({name: value}), strict=not isinstance(value, str))
    except ValidationError as error:
        return "; ".join(e["msg"].lower() for e in error.errors())
    return None


def choices(name: str) -> tuple[str, ...]:
    """The closed set that a path takes, as text; empty when it is not closed."""
    model: Any = TrainConfig
    for part in (path_of(name) or name).split("."):
        field = cast("type[BaseModel]", model).model_fields.get(part)
        if field is None:
            return ()
        model = field.annotation
    return tuple(str(a) for a in get_args(model) if isinstance(a, str))
