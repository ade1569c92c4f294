"""The training worker of one accelerator: verl's split primitives, with the swarm's loss and the questions that it asks.

Runs as a Ray actor, one a rank; every method is called on all ranks at once.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker

from swarm.server.engine_verl import fsdp_engine
from swarm.server.engine_verl.checkpoints import EXPORT
from swarm.server.engine_verl.exports import aliases_of, write_export
from swarm.server.engine_verl.lora import check_untied, layers_of, plain_name
from swarm.server.engine_verl.losses import weighted_policy_loss
from swarm.server.engine_verl.refill import adapter_for
from swarm.server.engine_verl.snapshots import modules_of
from swarm.server.engine_verl.undo import Undoable
from swarm.server.engine_verl.weights import checksum


class SwarmWorker(Undoable, TinkerActorRolloutRefWorker):
    """Actor, rollout adapter and (role ``actor_rollout_ref``) the frozen model of the beginning."""

    @property
    def _trained(self) -> Any:
        return self.actor.engine

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the model as verl does and give it our loss."""
        if self.config.rollout.checkpoint_engine.backend != "naive":
            # The rollout has accelerators of its own: no adapter to it here, weights go by the checkpoint engine.
            self.role = self.role.replace("_rollout", "")
        super().init_model()
        engine = self.actor.engine
        if isinstance(engine, fsdp_engine.SwarmFSDPEngine) and engine.adapted:
            named = engine.module.named_parameters(remove_duplicate=False)
            check_untied(layers_of(engine.module), named)
        actor = omega_conf_to_dataclass(self.config.actor)
        self.actor.set_loss_fn(partial(weighted_policy_loss, actor))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fingerprint(self) -> str:
        """Return the checksum of the whole weights as they are served; the same on every rank. Moves nothing."""
        named, _ = self.actor.engine.get_per_tensor_param()
        return checksum(named)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def refill(self, replica: int, version: int) -> None:
        """Give the weights to one replica that was launched anew, while the others go on sampling."""
        own = self.rollout
        self.rollout = adapter_for(own, replica)
        try:
            await self.update_weights(global_steps=version, mode="naive")
        finally:
            self.rollout = own

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def describe(self) -> dict[str, Any]:
        """Return parameters (of the whole model), device and data-parallel size."""
        modules = modules_of(self.actor.engine)
        return {
            "parameters": sum(p.numel() for module in modules for p in module.parameters()),
            "device": self.actor.device_name,
            "data_parallel": self.actor.engine.get_data_parallel_size(),
        }

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(
        self,
        local_path: str,
        hdfs_path: str | None = None,
        global_step: int = 0,
        max_ckpt_to_keep: int | None = None,
    ) -> None:
        """Write verl's shards and its export; under LoRA the export is ours, because verl's has base and adapters apart."""
        super().save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)
        engine = self.actor.engine
        if isinstance(engine, fsdp_engine.SwarmFSDPEngine) and engine.adapted:
            self._export(Path(local_path) / EXPORT)

    def _export(self, folder: Path) -> None:
        """Every rank gathers, the first one keeps and writes."""
        writes = torch.distributed.get_rank() == 0
        named, _ = self.actor.engine.get_per_tensor_param()
        weights = {name: weight.cpu() for name, weight in named if writes}
        if writes:
            base = self.actor.engine.module.named_parameters(remove_duplicate=False)
            tied = aliases_of((plain_name(name), parameter) for name, parameter in base)
            write_export(folder, {n: w for n, w in weights.items() if n not in tied})
        torch.distributed.barrier()
