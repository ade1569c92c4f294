"""What the engine of a cell asks of its run: patience, and GPUs that are its own."""

from __future__ import annotations

from typing import Any

from a3r.leader.goal import GoalSpec
from a3r.leader.training import cell_settings, training_tree


def engine_warnings(spec: GoalSpec) -> list[str]:
    """What is allowed but odd about engines and GPUs; the same sentence once."""
    found: dict[str, None] = {}
    for condition in spec.conditions:
        for level in spec.levels:
            cell = cell_settings(spec, spec.cell(level, condition))
            tree = training_tree(cell)
            if tree.get("engine") == "verl":
                found |= dict.fromkeys(_of_verl(tree.get("verl", {}), cell.resources.gpus))
    return list(found)


def _of_verl(section: dict[str, Any], gpus: int) -> list[str]:
    """``section`` is ``verl`` of the training configuration, as the goal gives it."""
    address = section.get("ray_address")
    if address is not None:
        if not gpus:
            return []
        return [
            f"`gpus: {gpus}` are GPUs of the worker's machine, and the engine uses those of the cluster at {address}: leave "
            "`gpus` out"
        ]
    wanted = _gpus(section) + _gpus(section.get("rollout_gpus"))
    if gpus == wanted:
        return []
    told = f"the engine verl takes {wanted} GPU(s) (`verl.gpus_per_node`, and others of `verl`), and `gpus` reserves {gpus or 'none'}: "
    if gpus:
        return [f"{told}write `gpus: {wanted}`"]
    return [
        f"{told}runs at the same time would share them. Write `gpus: {wanted}`, unless the machine has none"
    ]


def _gpus(places: dict[str, Any] | None) -> int:
    """Of a section with ``nodes`` and ``gpus_per_node``, one each when it does not say; 0 without a section."""
    return (
        0 if places is None else int(places.get("nodes", 1)) * int(places.get("gpus_per_node", 1))
    )
