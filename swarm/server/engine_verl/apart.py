"""A rollout on accelerators of its own (``verl.rollout_gpus``) in verl's keys, and how many replicas it has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarm.protocol.config import VerlConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.keys import ROLLOUT

GLOO = "swarm.server.engine_verl.gloo_weights"
CHECKPOINT = f"{ROLLOUT}.checkpoint_engine"


def apart_keys(verl: VerlConfig, *, device: str) -> dict[str, Any]:
    """Return dotted verl key -> value; nothing when training and rollout share their accelerators.

    Weights go by NCCL between GPUs and by gloo without; ``verl.options`` may name another of verl's checkpoint engines. NCCL's
    group is made anew each time: a replica that is launched anew joins a group of two first.
    """
    if verl.rollout_gpus is None:
        return {}
    return {
        f"{ROLLOUT}.n_gpus_per_node": verl.rollout_gpus.gpus_per_node,
        f"{ROLLOUT}.nnodes": verl.rollout_gpus.nodes,
        # The trainer never needs the memory of the rollout's accelerators.
        f"{ROLLOUT}.enable_sleep_mode": False,
        f"{ROLLOUT}.free_cache_engine": False,
        f"{CHECKPOINT}.backend": "nccl" if device == "cuda" else "swarm_gloo",
        f"{CHECKPOINT}.custom_backend_module": GLOO,
        f"{CHECKPOINT}.engine_kwargs": {"nccl": {"rebuild_group": True}},
    }


def replica_sizes(verl: VerlConfig, width: int) -> list[list[int]]:
    """Return, a replica of ``width`` accelerators, how many it takes on each of its nodes; empty when nothing is apart.

    Raises:
        ConfigError: replicas of that width do not fill the nodes.
    """
    gpus = verl.rollout_gpus
    if gpus is None:
        return []
    total, here = gpus.nodes * gpus.gpus_per_node, min(width, gpus.gpus_per_node)
    if total % width or width % here or gpus.gpus_per_node % here:
        raise ConfigError(
            f"verl.rollout_gpus has {gpus.nodes} x {gpus.gpus_per_node} GPUs, which replicas of {width} do not fill.",
            hint="Change verl.rollout_gpus, or the rollout's tensor_model_parallel_size in verl.options.",
        )
    return [[here] * (width // here) for _ in range(total // width)]


def shapes(verl: VerlConfig) -> list[int]:
    """Return the accelerators of each group that must lie on one machine: the trainer's nodes, then the rollout's own."""
    apart = verl.rollout_gpus
    own = [apart.gpus_per_node] * apart.nodes if apart else []
    return [verl.gpus_per_node] * verl.nodes + own


def fits(groups: Sequence[int], rooms: Sequence[float]) -> bool:
    """Return whether machines with that much room hold the groups, the largest placed first."""
    left = sorted(rooms, reverse=True)
    for size in sorted(groups, reverse=True):
        place = next((i for i, room in enumerate(left) if room >= size), None)
        if place is None:
            return False
        left[place] -= size
    return True
