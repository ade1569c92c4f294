"""Keys of verl that are not a user's to set in ``verl.options``: the swarm has a word for them, or nothing here reads them.

A key that is silently without effect is worse than one that is refused. Pure tables; ``check_owned`` says what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.keys import ACTOR, MODEL, ROLLOUT
from swarm.server.engine_verl.options import dotted, value_at

REF = "actor_rollout_ref.ref"
CONSTANT = "optimizer.lr (constant; a client or the page changes it while it runs)"
PER_CALL = "the sampling section; each call brings its own"
OWNED: dict[str, str] = {
    f"{MODEL}.path": "model.path",
    f"{ACTOR}.strategy": "verl.strategy",
    f"{ACTOR}.fsdp_config.strategy": "verl.strategy",
    f"{REF}.strategy": "verl.strategy",
    f"{REF}.fsdp_config.strategy": "verl.strategy",
    f"{ACTOR}.policy_loss.loss_mode": "verl.loss",
    f"{ACTOR}.loss_agg_mode": "algorithm.loss_aggregation",
    f"{ACTOR}.loss_scale_factor": "algorithm.loss_aggregation",
    f"{ACTOR}.clip_ratio": "algorithm.clip_low and algorithm.clip_high",
    f"{ACTOR}.clip_ratio_low": "algorithm.clip_low",
    f"{ACTOR}.clip_ratio_high": "algorithm.clip_high",
    f"{ACTOR}.ppo_mini_batch_size": "algorithm.minibatches",
    f"{ACTOR}.ppo_epochs": "algorithm.epochs",
    f"{ACTOR}.shuffle": "nothing: minibatches are cut in the order of their groups",
    f"{ACTOR}.use_kl_loss": "algorithm.kl_coef",
    f"{ACTOR}.kl_loss_coef": "algorithm.kl_coef",
    f"{ACTOR}.kl_loss_type": "algorithm.kl_coef (the estimator is k3)",
    f"{ACTOR}.grad_clip": "optimizer.grad_clip",
    f"{ACTOR}.optim.clip_grad": "optimizer.grad_clip",
    f"{ACTOR}.optim.lr": "optimizer.lr",
    f"{ACTOR}.optim.betas": "optimizer.beta1 and optimizer.beta2",
    f"{ACTOR}.optim.weight_decay": "optimizer.weight_decay",
    f"{ACTOR}.optim.lr_warmup_steps": CONSTANT,
    f"{ACTOR}.optim.lr_warmup_steps_ratio": CONSTANT,
    f"{ACTOR}.optim.lr_scheduler_type": CONSTANT,
    f"{ACTOR}.optim.warmup_style": CONSTANT,
    f"{ACTOR}.optim.min_lr_ratio": CONSTANT,
    f"{ACTOR}.optim.num_cycles": CONSTANT,
    f"{ACTOR}.optim.total_training_steps": "stop_at_step",
    f"{ACTOR}.checkpoint.save_contents": "the checkpoint section",
    f"{ACTOR}.checkpoint.load_contents": "the checkpoint section",
    f"{ROLLOUT}.name": "verl.rollout",
    f"{ROLLOUT}.n": "batch.repeat",
    f"{ROLLOUT}.n_gpus_per_node": "verl.gpus_per_node",
    f"{ROLLOUT}.nnodes": "verl.nodes",
    f"{ROLLOUT}.max_model_len": "model.max_model_len",
    f"{ROLLOUT}.prompt_length": "model.max_model_len and sampling.max_response_tokens",
    f"{ROLLOUT}.response_length": "sampling.max_response_tokens",
    f"{ROLLOUT}.temperature": PER_CALL,
    f"{ROLLOUT}.top_p": PER_CALL,
    f"{ROLLOUT}.top_k": PER_CALL,
    f"{ROLLOUT}.do_sample": PER_CALL,
    "critic.enable": "verl.adv_estimator: gae",
    "critic.strategy": "verl.strategy",
    "critic.ppo_epochs": "algorithm.epochs",
    "critic.ppo_mini_batch_size": "algorithm.minibatches",
    "trainer.nnodes": "verl.nodes",
    "trainer.n_gpus_per_node": "verl.gpus_per_node",
    "trainer.total_training_steps": "stop_at_step",
    "trainer.save_freq": "checkpoint.every_steps",
    "trainer.max_actor_ckpt_to_keep": "checkpoint.keep",
    "trainer.project_name": "run_name",
    "trainer.experiment_name": "run_name",
    "data.train_batch_size": "batch.tasks",
    "data.max_prompt_length": "model.max_model_len",
    "data.max_response_length": "sampling.max_response_tokens",
    "algorithm.adv_estimator": "verl.adv_estimator, or algorithm.name",
    "algorithm.use_kl_in_reward": "algorithm.kl_coef",
}
"""verl's key -> where the swarm says it."""
LOOP = (
    "algorithm.filter_groups",
    "algorithm.kl_",
    "algorithm.pf_ppo",
    "algorithm.rollout_correction",
    "algorithm.use_pf_ppo",
)
"""What verl's loop does with advantages before or after an estimator."""
HYDRA = frozenset({"_target_", "_args_", "_recursive_", "_partial_", "_convert_"})
"""Keys with which a section names what is called to make it."""
READ = ("actor_rollout_ref", "global_profiler")
"""Sections of verl's configuration that reach a worker of this engine; the others are of verl's own training loop."""


def check_owned(
    before: Mapping[str, Any], options: Mapping[str, Any], *, estimator: str | None
) -> None:
    """Refuse options that contradict the swarm's words, or that nothing would read.

    ``before`` is the tree without them, ``estimator`` is ``verl.adv_estimator``.
    An option that says what is so anyway passes.

    Raises:
        ConfigError: the hint names where to say it.
    """
    for key, value in dotted(options).items():
        if made := HYDRA.intersection([*key.split("."), *_names_in(value)]):
            raise ConfigError(
                f"verl.options: {min(made)!r} says what a section is made by, which is verl's to say; sent was {key!r}.",
                hint="Leave it out.",
            )
        if key in OWNED and value_at(before, key) != value:
            raise ConfigError(
                f"verl.options: {key!r} is not set here; sent was {value!r}.",
                hint=f"The swarm's word for it is {OWNED[key]}.",
            )
        if key not in OWNED and not _read(key, estimator):
            raise ConfigError(
                f"verl.options: nothing reads {key!r} here; it belongs to verl's own training loop, or to an estimator.",
                hint=f"Sections that are read: {', '.join(READ)}; algorithm with verl.adv_estimator, critic with 'gae'.",
            )


def _read(key: str, estimator: str | None) -> bool:
    section = key.split(".")[0]
    if section == "algorithm":
        return estimator is not None and not key.startswith(LOOP)
    if section == "critic":
        return estimator == "gae"
    return section in READ


def _names_in(value: Any) -> Iterator[str]:
    """Keys of the mappings in a list, however deep."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names_in(inner)
