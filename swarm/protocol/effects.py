"""When a change of each configuration key takes effect: the one table that server, command line and docs use.

``STEP`` keys never change what a recorded batch means (learning rate and KL weight travel in the batch), so a replay needs
nothing but the journal. Whatever the update of a recorded batch depends on beyond that is a ``RUN`` key.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import ConfigChange
from swarm.protocol.states import ConfigEffect

EFFECTS: dict[str, ConfigEffect] = {
    "run_name": ConfigEffect.RUN,
    "seed": ConfigEffect.RUN,
    "engine": ConfigEffect.RUN,
    "model.path": ConfigEffect.RUN,
    "model.max_model_len": ConfigEffect.ENGINE,
    "model.tool_parser": ConfigEffect.ENGINE,
    "model.reasoning": ConfigEffect.ENGINE,
    "sampling.*": ConfigEffect.ENGINE,
    "algorithm.*": ConfigEffect.RUN,
    "algorithm.kl_coef": ConfigEffect.STEP,
    "optimizer.*": ConfigEffect.RUN,
    "optimizer.lr": ConfigEffect.STEP,
    "batch.*": ConfigEffect.STEP,
    "episode.*": ConfigEffect.STEP,
    "guard.*": ConfigEffect.STEP,
    "checkpoint.*": ConfigEffect.STEP,
    "eval_gate.*": ConfigEffect.STEP,
    "asynchronous.enabled": ConfigEffect.RUN,
    "asynchronous.max_staleness": ConfigEffect.STEP,
    "asynchronous.importance_cap": ConfigEffect.RUN,
    "verl.*": ConfigEffect.RUN,
    "verl.ray_address": ConfigEffect.ENGINE,
    "engine_hang_s": ConfigEffect.ENGINE,
    "match": ConfigEffect.RUN,
    "stop_at_step": ConfigEffect.STEP,
}
"""Dotted key -> effect; ``section.*`` covers the keys of a section, and of sections in it, that are not named themselves."""

RESTARTS: dict[ConfigEffect, str] = {
    ConfigEffect.STEP: "no restart: it holds from the next step",
    ConfigEffect.ENGINE: "a restart of the engine: the run goes on",
    ConfigEffect.RUN: "a new run, from step 0",
}
"""What each effect takes, in words."""


def effect_of(key: str) -> ConfigEffect:
    """Return when a change of the dotted ``key`` takes effect.

    Raises:
        KeyError: the table has no line for it (a test keeps it complete).
    """
    return EFFECTS[line_of(key)]


def line_of(key: str) -> str:
    """Return the line of the table that covers the dotted ``key``: its own, else that of the nearest section."""
    if key in EFFECTS:
        return key
    section = key
    while "." in section:
        section = section.rpartition(".")[0]
        if f"{section}.*" in EFFECTS:
            return f"{section}.*"
    return key


def leaf_keys(model: type[BaseModel] = TrainConfig, prefix: str = "") -> list[str]:
    """Return every dotted key of the schema that holds a value and not a section, in its order."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += leaf_keys(inner, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def flat(config: TrainConfig) -> dict[str, Any]:
    """Return dotted key -> JSON value, in the order of the schema."""
    tree = config.model_dump(mode="json")
    return {key: _at(tree, key) for key in leaf_keys()}


def changes_between(old: TrainConfig | None, new: TrainConfig) -> list[ConfigChange]:
    """Return the keys that differ with what each takes, in the order of the schema; against None: every key, as a new run."""
    after = flat(new)
    if old is None:
        return [ConfigChange(key=key, new=value) for key, value in after.items()]
    before = flat(old)
    return [
        ConfigChange(key=key, old=before[key], new=value, effect=effect_of(key))
        for key, value in after.items()
        if before[key] != value
    ]


def heaviest(changes: list[ConfigChange]) -> ConfigEffect:
    """Return the effect that all ``changes`` together take; ``STEP`` for none."""
    found = {change.effect for change in changes}
    order = (ConfigEffect.RUN, ConfigEffect.ENGINE)
    return next((effect for effect in order if effect in found), ConfigEffect.STEP)


def needs(changes: list[ConfigChange]) -> str:
    """Say which keys take more than a step boundary, and what: ``optimizer.beta1, seed: a new run, from step 0``."""
    lines: list[str] = []
    for effect in (ConfigEffect.ENGINE, ConfigEffect.RUN):
        keys = [change.key for change in changes if change.effect is effect]
        if keys:
            lines.append(f"{', '.join(keys)}: {RESTARTS[effect]}")
    return "; ".join(lines)


def _at(tree: dict[str, Any], key: str) -> Any:
    value: Any = tree
    for part in key.split("."):
        value = cast("dict[str, Any]", value)[part]
    return value
