"""verl's registry of advantage estimators, asked with what the swarm knows of an episode."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.batches import Floats
from swarm.server.engine_verl.estimators import Estimate, Sequences, among_others

GAE = "gae"
REFUSED = {
    "gdpo": "it needs several rewards an episode",
    "remax": "it needs the reward of a greedy answer beside each group",
    "optimal_token_baseline": "it needs the whole distribution of each token",
    "tir_optimal_token_baseline": "it needs the whole distribution of each token",
}
"""Estimators of verl 0.9.1 that need what rows do not carry."""
COMPARING = frozenset({"grpo_passk"})
"""Those that fail on a group of one: what is left where the tokens of its other episodes were masked."""


def check_estimator(name: str) -> None:
    """Refuse an estimator that the installed verl does not have, or that needs what is not known here.

    Raises:
        ConfigError: the hint lists those that work.
    """
    known = _known()
    if name in REFUSED:
        raise ConfigError(
            f"verl.adv_estimator {name!r} cannot be used here: {REFUSED[name]}.",
            hint=f"Use one of: {', '.join(known)}.",
        )
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise ConfigError(
            f"The installed verl has no advantage estimator {name!r}.",
            hint=f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(known)}.",
        )


def estimator(name: str, config: Any) -> Estimate:
    """Return the estimator as a function of sequences; ``config`` is verl's ``algorithm`` section (``gamma``, ...)."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    estimate = _without_values(get_adv_estimator_fn(name), config)
    return among_others(estimate) if name in COMPARING else estimate


def _without_values(function: Any, config: Any) -> Estimate:
    def estimate(sequences: Sequences) -> Floats:
        advantage, _ = function(**_arguments(function, sequences, config))
        return advantage.float().numpy()

    return estimate


def _arguments(function: Any, sequences: Sequences, config: Any) -> dict[str, Any]:
    import torch

    offered = {
        # Copies: some of verl's estimators write into what they are given.
        "token_level_rewards": torch.from_numpy(sequences.reward_E_L.copy()),
        "response_mask": torch.from_numpy(sequences.mask_E_L.copy()),
        "old_log_probs": torch.from_numpy(sequences.old_E_L.copy()),
        "index": sequences.index_E,
        "config": config,
        "norm_adv_by_std_in_grpo": config.norm_adv_by_std_in_grpo,
    }
    return {name: value for name, value in offered.items() if name in _takes(function)}


def _takes(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def _known() -> list[str]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return sorted(str(getattr(n, "value", n)) for n in ADV_ESTIMATOR_REGISTRY if n not in REFUSED)
