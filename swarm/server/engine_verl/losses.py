"""The loss that verl's workers minimise: any of verl's policy losses that weighs tokens, with the weights of our rows.

Runs in the training workers. verl calls it once a micro batch; with ``token-sum`` it neither averages nor counts.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from typing import Any

from swarm.protocol.errors import ConfigError

WEIGHING = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "gpg", "clip_cov", "kl_cov", "dro", "cispo")
"""Those that multiply a token's loss with its ``rollout_is_weights`` and add up as they are told; the others of verl 0.9.1
(sapo, geo_mean, bypass_mode, reinforce) use that argument for something else or reduce on their own."""


def check_loss(name: str) -> None:
    """Refuse a loss that would not weigh tokens as the rows say.

    Raises:
        ConfigError: lists those that do.
    """
    if name not in WEIGHING:
        raise ConfigError(
            f"verl.loss {name!r} is not a loss of verl that weighs tokens.",
            hint=f"Use one of: {', '.join(WEIGHING)}.",
        )


def try_loss(actor: Any) -> None:
    """Compute the loss of two tokens once, so that a key that it misses is told at boot and not by the first update.

    Raises:
        ConfigError: with verl's words; ``actor`` is verl's dataclass of that section.
    """
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    name = actor.policy_loss.get("loss_mode", "vanilla")
    zeros, ones = torch.zeros(1, 2), torch.ones(1, 2)
    actor.global_batch_info.update(dp_size=1)
    try:
        get_policy_loss_fn(name)(
            old_log_prob=zeros,
            log_prob=zeros,
            advantages=ones,
            response_mask=ones.bool(),
            loss_agg_mode="token-sum",
            config=actor,
            rollout_is_weights=ones,
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(
            f"verl.loss {name!r} cannot be computed: {error}",
            hint="Set its keys in verl.options, below actor_rollout_ref.actor.policy_loss.",
        ) from error


def weighted_policy_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
    """Return ``sum(weight * (policy loss + kl_coef * k3 - entropy_coeff * entropy))`` over the trained tokens, and metrics.

    The sum is over all workers. Importance is in the policy loss's weight only: ``row_weights`` are the others' where there is any.

    verl averages gradients over data-parallel ranks and multiplies with their number in ``agg_loss``. The KL term is that of
    the embedded engine: estimator k3 (Schulman 2020).
    """
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    logprob = no_padding_2_padding(model_output["log_probs"], data)
    config.global_batch_info.update(dp_size=data["dp_size"])
    kl_coef = tu.get_non_tensor_data(data=data, key="kl_coef", default=0.0)
    entropy = model_output.get("entropy", None) if config.entropy_coeff else None
    names = ["response_mask", "old_log_probs", "advantages", "rollout_is_weights"]
    names += [name for name in ("ref_log_prob", "row_weights") if name in data]
    fields = data.select(*names).to_padded_tensor()
    mask, weight = fields["response_mask"].to(bool), fields["rollout_is_weights"]
    loss, metrics = get_policy_loss_fn(config.policy_loss.get("loss_mode", "vanilla"))(
        old_log_prob=fields["old_log_probs"],
        log_prob=logprob,
        advantages=fields["advantages"],
        response_mask=mask,
        loss_agg_mode="token-sum",
        config=config,
        rollout_is_weights=weight,
    )

    def total(matrix: Any) -> Any:
        return agg_loss(
            loss_mat=fields.get("row_weights", weight) * matrix,
            loss_mask=mask,
            loss_agg_mode="token-sum",
            **config.global_batch_info,
        )

    if kl_coef and "ref_log_prob" in names:
        distance = fields["ref_log_prob"] - logprob
        loss = loss + kl_coef * total(distance.exp() - 1.0 - distance)
    if entropy is not None:
        loss = loss - config.entropy_coeff * total(no_padding_2_padding(entropy, data))
    return loss, {name: [value] for name, value in metrics.items()}
