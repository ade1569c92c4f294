"""verl's configuration of a run: what the installed verl ships, under the swarm's words, under ``verl.options``."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import dataclasses
from importlib import import_module, resources
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.apart import apart_keys
from swarm.server.engine_verl.budgets import check_tokens
from swarm.server.engine_verl.keys import ACTOR, MODEL, ROLLOUT, critic_keys, uses_critic, verl_keys
from swarm.server.engine_verl.losses import try_loss
from swarm.server.engine_verl.options import Tree, dotted, overlaid, value_at
from swarm.server.engine_verl.owned import check_owned
from swarm.server.engine_verl.verl_estimators import check_estimator

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
    f"{ROLLOUT}.enable_chunked_prefill": False,
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64,
}
"""float32 throughout, so that two engines can be compared; no sleeping, for vLLM's CPU build cannot; prompts are not cut, for
vLLM then winds a request's generator back, which a CPU's cannot ("CPU Generator does not use offset")."""
CPU_CRITIC: dict[str, Any] = {
    "critic.model.use_remove_padding": False,
    "critic.model.enable_gradient_checkpointing": False,
    "critic.model.override_config.attn_implementation": "sdpa",
    "critic.fsdp.use_torch_compile": False,
    "critic.fsdp.mixed_precision": FLOAT32,
}
SAVED = ["model", "optimizer", "extra", "hf_model"]


def compose(config: TrainConfig, *, folder: str, max_len: int, device: str, added: int = 0) -> Any:
    """Return verl's configuration (an OmegaConf ``DictConfig``). A row may be ``added`` tokens longer than its model's context.

    Raises:
        ConfigError: ``verl.options`` names a key that the installed verl has not or that the swarm sets, a value is of another
            kind, or verl refuses them together.
    """
    from omegaconf import OmegaConf

    path = resources.files("verl.trainer.config") / SHIPPED[config.verl.strategy]
    tree = OmegaConf.to_container(OmegaConf.create(path.read_text("utf-8")), resolve=False)
    assert isinstance(tree, dict)
    own = verl_keys(config, folder=folder, max_len=max_len)
    own |= {f"{ACTOR}.checkpoint.save_contents": SAVED}
    own |= {f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"]}
    if uses_critic(config):
        if config.verl.strategy != "fsdp2":
            raise ConfigError(
                "verl.adv_estimator 'gae' trains a value model, which is built for verl.strategy 'fsdp2' only.",
                hint="Use 'fsdp2', or an estimator without a value model.",
            )
        own |= critic_keys(config, folder=folder, max_len=max_len)
        own |= CPU_CRITIC if device == "cpu" else {}
    if device == "cpu":
        own |= CPU_KEYS | {f"{ROLLOUT}.max_num_batched_tokens": max(512, max_len)}
    own |= apart_keys(config.verl, device=device)
    shipped: dict[str, Any] = {str(k): v for k, v in tree.items()}
    if config.verl.adv_estimator is not None:
        check_estimator(config.verl.adv_estimator)
    before = overlaid(shipped, own, fields_of)
    after = overlaid(before, config.verl.options, fields_of, known=shipped)
    check_owned(before, config.verl.options, estimator=config.verl.adv_estimator)
    composed = OmegaConf.create(overlaid(after, _adapted(after, config.verl.options), fields_of))
    _check_sections(composed)
    check_tokens(composed, max_len + added)
    return composed


def _adapted(tree: Tree, options: dict[str, Any]) -> Tree:
    """What LoRA changes under FSDP: adapters are merged for the sampler, and the export is ours."""
    if not value_at(tree, f"{MODEL}.lora_rank"):
        return {}
    if dotted(options).get(f"{MODEL}.lora.merge") is False:
        raise ConfigError(
            "verl.options: adapters reach the sampler merged; actor_rollout_ref.model.lora.merge false is not built.",
            hint="Leave it out, or set it to true.",
        )
    saved = [part for part in SAVED if part != "hf_model"]
    return {f"{MODEL}.lora.merge": True, f"{ACTOR}.checkpoint.save_contents": saved}


def fields_of(target: str) -> frozenset[str]:
    """Return the fields of the dataclass that a section becomes; empty for a section that becomes none."""
    module, _, name = target.rpartition(".")
    if not module.startswith("verl."):
        return frozenset()
    cls = getattr(import_module(module), name, None)
    if not dataclasses.is_dataclass(cls):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(cls))


def _check_sections(composed: Any) -> None:
    """Make verl's own dataclasses of what workers read, here and not in a worker: verl's checks then speak to the user."""
    from hydra.errors import InstantiationException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from verl.utils.config import omega_conf_to_dataclass

    for name in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"):
        try:
            section = omega_conf_to_dataclass(OmegaConf.select(composed, name))
        except (InstantiationException, OmegaConfBaseException, ValueError, TypeError) as error:
            raise ConfigError(
                f"verl refuses its section {name}: {error.__cause__ or error}",
                hint="Look at verl.options.",
            ) from error
        if name.endswith(".actor"):
            try_loss(section)
