"""verl's configuration of a run: what the installed verl ships, under the swarm's words, under ``verl.options``."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import dataclasses
from importlib import import_module, resources
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.keys import ACTOR, MODEL, ROLLOUT, verl_keys
from swarm.server.engine_verl.options import overlaid

SHIPPED = {
    "fsdp2": "_generated_ppo_trainer.yaml",
    "megatron": "_generated_ppo_megatron_trainer.yaml",
}
"""The installed verl's own defaults, flattened by its release script."""
FLOAT32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
CPU_KEYS: dict[str, Any] = {
    "trainer.device": "cpu",
    f"{MODEL}.use_remove_padding": False,
    f"{MODEL}.enable_gradient_checkpointing": False,
    f"{MODEL}.override_config.attn_implementation": "sdpa",
    f"{ACTOR}.use_torch_compile": False,
    f"{ACTOR}.fsdp_config.use_torch_compile": False,
    f"{ACTOR}.fsdp_config.model_dtype": "fp32",
    f"{ACTOR}.fsdp_config.mixed_precision": FLOAT32,
    "actor_rollout_ref.ref.fsdp_config.mixed_precision": FLOAT32,
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.ref.use_torch_compile": False,
    f"{ROLLOUT}.dtype": "float32",
    f"{ROLLOUT}.enforce_eager": True,
    f"{ROLLOUT}.enable_sleep_mode": False,
    f"{ROLLOUT}.free_cache_engine": False,
    f"{ROLLOUT}.gpu_memory_utilization": 0.2,
    f"{ROLLOUT}.max_num_seqs": 64,
    f"{ROLLOUT}.max_num_batched_tokens": 512,
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64,
}
"""float32 throughout, so that two engines can be compared; no sleeping, for vLLM's CPU build cannot."""
SAVED = ["model", "optimizer", "extra", "hf_model"]


def compose(config: TrainConfig, *, folder: str, max_len: int, device: str) -> Any:
    """Return verl's configuration (an OmegaConf ``DictConfig``).

    Raises:
        ConfigError: ``verl.options`` names a key that the installed verl has not.
    """
    from omegaconf import OmegaConf

    path = resources.files("verl.trainer.config") / SHIPPED[config.verl.strategy]
    tree = OmegaConf.to_container(OmegaConf.create(path.read_text("utf-8")), resolve=False)
    assert isinstance(tree, dict)
    own = verl_keys(config, folder=folder, max_len=max_len)
    own |= {f"{ACTOR}.checkpoint.save_contents": SAVED}
    own |= {f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"]}
    own |= CPU_KEYS if device == "cpu" else {}
    shipped: dict[str, Any] = {str(k): v for k, v in tree.items()}
    return OmegaConf.create(
        overlaid(overlaid(shipped, own, fields_of), config.verl.options, fields_of)
    )


def fields_of(target: str) -> frozenset[str]:
    """Return the fields of the dataclass that a section becomes; empty for a section that becomes none."""
    module, _, name = target.rpartition(".")
    if not module.startswith("verl."):
        return frozenset()
    cls = getattr(import_module(module), name, None)
    if not dataclasses.is_dataclass(cls):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(cls))
