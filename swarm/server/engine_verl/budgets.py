"""How many rows and tokens go to a worker at once, as verl's composed configuration has it; what does not fit is refused."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import math
from typing import Any

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.keys import ACTOR, ROLLOUT

REF = "actor_rollout_ref.ref"
SIZES = {
    f"{ACTOR}.use_dynamic_bsz": (
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    ),
    f"{REF}.log_prob_use_dynamic_bsz": (f"{REF}.log_prob_micro_batch_size_per_gpu",),
}
CRITIC_SIZES = {
    "critic.use_dynamic_bsz": (
        "critic.ppo_micro_batch_size_per_gpu",
        "critic.ppo_infer_micro_batch_size_per_gpu",
    )
}
"""Key that turns fixed micro batches off -> their sizes in rows."""
TOKENS = (
    (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ACTOR}.use_dynamic_bsz"),
    (f"{ROLLOUT}.log_prob_max_token_len_per_gpu", f"{ACTOR}.use_dynamic_bsz"),
    (f"{REF}.log_prob_max_token_len_per_gpu", f"{REF}.log_prob_use_dynamic_bsz"),
)


def row_multiple(composed: Any, data_parallel: int, *, critic: bool) -> int:
    """Return what the number of rows of a minibatch must be a multiple of: ranks, times fixed micro batches where there are any."""
    from omegaconf import OmegaConf

    sizes = [1]
    for dynamic, keys in (SIZES | (CRITIC_SIZES if critic else {})).items():
        if not OmegaConf.select(composed, dynamic):
            sizes += [OmegaConf.select(composed, key) or 1 for key in keys]
    return data_parallel * math.lcm(*sizes)


def check_tokens(composed: Any, max_len: int) -> None:
    """Refuse a token budget that a row of ``max_len`` tokens does not fit into: verl would fail in the step that has one.

    Raises:
        ConfigError: the hint says how much is enough.
    """
    from omegaconf import OmegaConf

    ranks = OmegaConf.select(composed, f"{ACTOR}.ulysses_sequence_parallel_size") or 1
    for key, dynamic in TOKENS:
        budget = OmegaConf.select(composed, key)
        if OmegaConf.select(composed, dynamic) and budget and budget * ranks < max_len:
            raise ConfigError(
                f"verl.options: {key!r} is {budget}, and a row may have {max_len} tokens.",
                hint=f"Set it to {-(-max_len // ranks)} or more, or lower model.max_model_len.",
            )
