"""verl's FSDP2 engine, registered for us in verl's own registry (vendor ``swarm``): adapters leave it merged in full precision."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import load_fsdp_model_to_gpu, offload_fsdp_model_to_cpu
from verl.utils.model import convert_weight_keys
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from swarm.server.engine_verl.lora import layers_of, merged

VENDOR = "swarm"
"""Value of ``VERL_ENGINE_VENDOR`` in each process: verl's registry then prefers this class; a backend without one of ours stays verl's."""


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp2"], device=["cuda", "npu"], vendor=VENDOR
)
class SwarmFSDPEngine(FSDPEngineWithLMHead):
    """As verl's, but for what becomes of LoRA adapters, and for layers that would be cut twice."""

    def _build_module(self) -> Any:
        """As verl's, but that no layer is named to be cut into shards that holds embeddings, which verl cuts by themselves.

        verl would cut such a layer first (CLIP's ``CLIPVisionEmbeddings``), and what is cut twice is not put together again.
        """
        module = super()._build_module()
        named = set(getattr(module, "_no_split_modules", None) or ())
        if held := named & _holders(module):
            module._no_split_modules = sorted(named - held)
        return module

    @property
    def adapted(self) -> bool:
        """Whether the model has LoRA adapters."""
        return hasattr(self.module, "peft_config")

    def get_per_tensor_param(
        self, layered_summon: bool = False, base_sync_done: bool = False, **kwargs: Any
    ) -> Any:
        """Return whole weights under their plain names, one at a time, on every rank; adapters are merged in."""
        if not self.adapted:
            return super().get_per_tensor_param(layered_summon, base_sync_done, **kwargs)
        return self._merged(), None

    def _merged(self) -> Iterator[tuple[str, Any]]:
        device = get_device_id()

        def whole(tensor: Any) -> Any:
            here = tensor.detach().to(device, non_blocking=True)
            return here.full_tensor() if hasattr(here, "full_tensor") else here.clone()

        if not self._uses_fsdp2_cpu_offload_policy:
            load_fsdp_model_to_gpu(self.module)
        try:
            named = dict(self.module.state_dict())
            for name, weight in merged(named, layers_of(self.module), whole):
                yield from convert_weight_keys({name: weight}, self.module).items()
        finally:
            if self._is_offload_param:
                offload_fsdp_model_to_cpu(self.module)


def _holders(module: Any) -> set[str]:
    """Names of the classes of modules with an embedding inside."""
    return {
        type(part).__name__
        for part in module.modules()
        if any(
            isinstance(child, torch.nn.Embedding) for child in part.modules() if child is not part
        )
    }
