"""What a training configuration of the swarm means in verl's own keys. Pure; ``verl.options`` are laid over it and win.

Where the swarm and verl say the same thing in two ways (learning rate, clip, lengths) the swarm's word is the default, so that
``engine: torch`` and ``engine: verl`` mean the same training.
"""

from __future__ import annotations

from typing import Any

from swarm.protocol.config import TrainConfig

ACTOR, ROLLOUT, MODEL = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.model",
)
NO_DUAL_CLIP = 1e9
"""verl's PPO loss also bounds the ratio of bad tokens from above (Ye et al. 2020); the swarm's does not."""
WHOLE_BATCH = 1 << 30
"""The swarm cuts minibatches itself; verl must not."""


def verl_keys(config: TrainConfig, *, folder: str, max_len: int) -> dict[str, Any]:
    """Return dotted verl key -> value for ``config``; ``folder`` holds the model, ``max_len`` is prompt plus answer in tokens."""
    verl = config.verl
    answer = min(config.sampling.max_response_tokens, max_len - 1)
    lengths = {
        f"{ROLLOUT}.max_model_len": max_len,
        f"{ROLLOUT}.prompt_length": max_len - answer,
        f"{ROLLOUT}.response_length": answer,
    }
    return {
        f"{MODEL}.path": folder,
        f"{ACTOR}.ppo_mini_batch_size": WHOLE_BATCH,
        f"{ROLLOUT}.name": verl.rollout,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.n_gpus_per_node": verl.gpus_per_node,
        "trainer.nnodes": verl.nodes,
        "trainer.n_gpus_per_node": verl.gpus_per_node,
        # Constraints come as llguidance's grammars, the same as the front checks them with.
        f"{ROLLOUT}.engine_kwargs.vllm.structured_outputs_config": {"backend": "guidance"},
        **lengths,
        **_strategy(config),
        **_micro_batches(max_len),
        **_loss(config),
        **_optimizer(config),
    }


def uses_reference(config: TrainConfig) -> bool:
    """Whether a frozen model of the beginning is kept from boot on."""
    return config.algorithm.kl_coef > 0


def uses_critic(config: TrainConfig) -> bool:
    """Whether a value model trains beside the policy."""
    return config.verl.adv_estimator == "gae"


def critic_keys(config: TrainConfig, *, folder: str, max_len: int) -> dict[str, Any]:
    """Return verl's keys of a value model that begins as the policy does, with a new head; its optimizer is verl's own."""
    return {
        "critic.model.path": folder,
        "critic.strategy": config.verl.strategy,
        "critic.fsdp.strategy": config.verl.strategy,
        "critic.loss_agg_mode": "token-mean",
        "critic.use_dynamic_bsz": True,
        "critic.ppo_max_token_len_per_gpu": max(16_384, 2 * max_len),
    }


def _strategy(config: TrainConfig) -> dict[str, Any]:
    name = config.verl.strategy
    if name != "fsdp2":
        return {}
    return {
        f"{ACTOR}.strategy": name,
        f"{ACTOR}.fsdp_config.strategy": name,
        "actor_rollout_ref.ref.fsdp_config.strategy": name,
    }


def _micro_batches(max_len: int) -> dict[str, Any]:
    """By tokens and not by rows: rows of a tree differ in length by orders of magnitude."""
    budget = max(16_384, 2 * max_len)
    return {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": budget}


def _loss(config: TrainConfig) -> dict[str, Any]:
    algorithm = config.algorithm
    return {
        f"{ACTOR}.policy_loss.loss_mode": config.verl.loss,
        f"{ACTOR}.clip_ratio": algorithm.clip_low,
        f"{ACTOR}.clip_ratio_low": algorithm.clip_low,
        f"{ACTOR}.clip_ratio_high": algorithm.clip_high,
        f"{ACTOR}.clip_ratio_c": NO_DUAL_CLIP,
        # Every token brings its own weight, already divided by the normaliser: verl adds them up.
        f"{ACTOR}.loss_agg_mode": "token-sum",
    }


def _optimizer(config: TrainConfig) -> dict[str, Any]:
    optimizer = config.optimizer
    return {
        f"{ACTOR}.optim.lr": optimizer.lr,
        f"{ACTOR}.optim.betas": [optimizer.beta1, optimizer.beta2],
        f"{ACTOR}.optim.weight_decay": optimizer.weight_decay,
        f"{ACTOR}.optim.clip_grad": optimizer.grad_clip,
        f"{ACTOR}.optim.lr_warmup_steps": 0,
        f"{ACTOR}.optim.total_training_steps": config.stop_at_step,
    }
