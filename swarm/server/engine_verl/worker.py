"""The training worker of one accelerator: verl's split primitives, with the swarm's loss and the questions that it asks.

Runs as a Ray actor, one a rank; every method is called on all ranks at once.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker

from swarm.server.engine_verl.losses import weighted_policy_loss
from swarm.server.engine_verl.weights import checksum


class SwarmWorker(TinkerActorRolloutRefWorker):
    """Actor, rollout adapter and (role ``actor_rollout_ref``) the frozen model of the beginning."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the model as verl does and give it our loss."""
        super().init_model()
        actor = omega_conf_to_dataclass(self.config.actor)
        self.actor.set_loss_fn(partial(weighted_policy_loss, actor))
        self._kept: tuple[dict[str, Any], Any] | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fingerprint(self) -> str:
        """Return the checksum of the whole weights as they are served; the same on every rank. Moves nothing."""
        named, _ = self.actor.engine.get_per_tensor_param()
        return checksum(named)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def describe(self) -> dict[str, Any]:
        """Return parameters (of the whole model), device and data-parallel size."""
        module = self.actor.engine.module
        return {
            "parameters": sum(p.numel() for p in module.parameters()),
            "device": self.actor.device_name,
            "data_parallel": self.actor.engine.get_data_parallel_size(),
        }

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def keep(self) -> None:
        """Copy this rank's weights and optimizer state to host memory, until ``put_back`` or ``forget``."""
        engine = self.actor.engine
        weights = {n: _local(p).detach().cpu().clone() for n, p in engine.module.named_parameters()}
        self._kept = (weights, copy.deepcopy(engine.optimizer.state_dict()))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def put_back(self) -> None:
        """Undo every move since ``keep``; without one do nothing."""
        if self._kept is None:
            return
        weights, optimizer = self._kept
        with torch.no_grad():
            for name, parameter in self.actor.engine.module.named_parameters():
                _local(parameter).copy_(weights[name])
        self.actor.engine.optimizer.load_state_dict(optimizer)
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget(self) -> None:
        """Free what ``keep`` copied."""
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finite(self) -> bool:
        """Return whether every weight of this rank is finite."""
        return all(bool(_local(p).isfinite().all()) for p in self.actor.engine.module.parameters())


def _local(tensor: Any) -> Any:
    """This rank's part of a tensor that is cut over ranks; the tensor itself otherwise."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
