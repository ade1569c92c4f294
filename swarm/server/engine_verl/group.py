"""The training workers of a run: one Ray actor a GPU, driven as one group."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.keys import uses_critic


def launch_workers(composed: Any, pool: Any, role: str) -> Any:
    """Start a ``SwarmWorker`` on every GPU of the pool and load the model; returns verl's worker group.

    ``composed`` is verl's whole configuration; ``role`` is ``actor_rollout`` (with ``_ref`` for a frozen model beside it), or
    ``actor`` to train without sampling.
    """
    import ray
    from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
    from verl.utils.device import get_device_name

    from swarm.server.engine_verl.worker import SwarmWorker

    workers = RayClassWithInitArgs(
        cls=ray.remote(SwarmWorker), config=composed.actor_rollout_ref, role=role
    )
    group = RayWorkerGroup(
        resource_pool=pool, ray_cls_with_init=workers, device_name=get_device_name()
    )
    group.init_model()
    return group


def judges(config: TrainConfig, composed: Any, pool: Any) -> dict[str, Any]:
    """Return what gives advantages beside the rows, as arguments of ``Trainer``; a value model is started on the pool."""
    name = config.verl.adv_estimator
    if name is None:
        return {}
    from verl.utils.config import omega_conf_to_dataclass

    from swarm.server.engine_verl.critic import launch_critic
    from swarm.server.engine_verl.verl_estimators import estimator

    if uses_critic(config):
        return {"critic": launch_critic(composed, pool, seed=config.seed)}
    return {"estimate": estimator(name, omega_conf_to_dataclass(composed.algorithm))}
