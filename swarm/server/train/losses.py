"""Token losses and statistics as pure functions of tensors; nothing here knows of batches, rows or optimizers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClippedLoss:
    """Per token: the loss, and whether the clip took the gradient away."""

    loss: Tensor
    clipped: Tensor


def ppo_clip(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, low: float, high: float
) -> ClippedLoss:
    """Clipped surrogate of PPO (Schulman et al. 2017, eq. 7), with separate bounds below and above (DAPO's clip-higher).

    ``-min(r * A, clip(r, 1 - low, 1 + high) * A)`` with ``r = exp(logprobs - old_logprobs)``, elementwise; all inputs
    broadcast to one shape. ``clipped`` is true where the clipped branch was strictly smaller, so that the token has no gradient.
    """
    ratio = (logprobs - old_logprobs).exp()
    free = ratio * advantages
    held = ratio.clamp(1.0 - low, 1.0 + high) * advantages
    return ClippedLoss(loss=-torch.minimum(free, held), clipped=held < free)


@dataclass(frozen=True)
class Importance:
    """Per token: the truncated weight (no gradient), and whether the truncation took something off."""

    weight: Tensor
    truncated: Tensor


def truncated_importance(target: Tensor, behaviour: Tensor, *, cap: float) -> Importance:
    """Truncated importance weights ``min(exp(target - behaviour), cap)`` (Ionides 2008), elementwise, detached.

    ``behaviour`` are the log-probabilities that a token was sampled with, ``target`` those of the policy whose gradient is
    wanted. Equal policies give exactly 1. A NaN stays one.
    """
    with torch.no_grad():
        ratio = (target - behaviour).exp()
        return Importance(weight=ratio.clamp(max=cap), truncated=ratio > cap)


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate of KL(policy, reference) from tokens of the policy: ``exp(d) - 1 - d`` with ``d = reference - policy``.

    Elementwise, never negative, 0 where both agree (Schulman 2020, "Approximating KL Divergence", estimator k3).
    """
    distance = reference_logprobs - logprobs
    return distance.exp() - 1.0 - distance


def entropy(logprobs_N_V: Tensor) -> Tensor:  # noqa: N803
    """Entropy of each distribution in nats, [N]; the last axis holds normalised log-probabilities."""
    return -(logprobs_N_V.exp() * logprobs_N_V).sum(-1)
