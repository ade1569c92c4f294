"""A value model beside the policy: what it expects of each token, advantages by GAE from that, and its own updates.

The driver's half; the workers are ``SwarmCritic``. Blocks, as the trainer does.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from swarm.server.engine_verl.batches import Floats, RowArrays, arrays_of
from swarm.server.engine_verl.budgets import row_multiple
from swarm.server.engine_verl.estimators import scattered, sequences_of
from swarm.server.ports import Span, TrainRow


class Critic:
    """Drives a group of ``SwarmCritic``; ``algorithm`` is verl's section of that name (``gamma``, ``lam``)."""

    def __init__(self, group: Any, algorithm: Any, *, multiple: int) -> None:
        self.group = group
        self._algorithm = algorithm
        self._multiple = multiple
        self._values: dict[str, list[float]] = {}
        self._returns: dict[str, list[float]] = {}

    def judge(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """Return the rows (in order of key) with the advantages that the values give; those with their own keep them.

        Values and returns are kept for the moves that follow.
        """
        import torch
        from verl.trainer.ppo.core_algos import compute_gae_advantage_return

        values = self._asked(rows)
        sequences = sequences_of(rows)
        value_E_L = np.zeros_like(sequences.mask_E_L)  # noqa: N806
        for index, part in enumerate(sequences.rows):
            told = [value for at in part for value in values[at]]
            value_E_L[index, : len(told)] = told
        advantage, returned = compute_gae_advantage_return(
            token_level_rewards=torch.from_numpy(sequences.reward_E_L),
            values=torch.from_numpy(value_E_L),
            response_mask=torch.from_numpy(sequences.mask_E_L),
            gamma=self._algorithm.gamma,
            lam=self._algorithm.lam,
        )
        own = scattered(rows, sequences, advantage.float().numpy())
        aims = scattered(rows, sequences, returned.float().numpy())
        keys = [row.key for row in rows]
        self._values = dict(zip(keys, values, strict=True))
        self._returns = dict(zip(keys, aims, strict=True))
        return [
            row if row.advantages else msgspec.structs.replace(row, advantages=mine)
            for row, mine in zip(rows, own, strict=True)
        ]

    def move(self, rows: Sequence[TrainRow]) -> str:
        """On rows that were judged, take one optimizer step towards the returns; returns what was not finite, empty when all was."""
        from verl.utils import tensordict_utils as tu

        from swarm.server.engine_verl.tensors import tensordict_of

        arrays = self._arrays(rows)
        more = {
            "values": self._laid_out(rows, self._values),
            "returns": self._laid_out(rows, self._returns),
        }
        self.group.optimizer_zero_grad()
        output = self.group.forward_backward(tensordict_of(arrays, more=more)).get()
        loss = float(tu.get(output, "metrics")["loss"])
        if not math.isfinite(loss):
            return f"the value model's loss is {loss}"
        answers = self.group.optimizer_step()
        norm = float(next((a["grad_norm"] for a in answers if a), math.nan))
        if not math.isfinite(norm):
            return f"the value model's gradient norm is {norm}"
        return "" if all(self.group.finite()) else "the value model's weights are not finite"

    def _asked(self, rows: Sequence[TrainRow]) -> list[list[float]]:
        from swarm.server.engine_verl.tensors import of_responses, tensordict_of

        arrays = self._arrays(rows)
        data = tensordict_of(arrays, compute_loss=False)
        value_R_S = of_responses(self.group.infer_batch(data).get(), "values", data)  # noqa: N806
        at = arrays.trained_R_S
        return [[float(v) for v in value_R_S[i][at[i]]] for i in range(len(rows))]

    def _arrays(self, rows: Sequence[TrainRow]) -> RowArrays:
        """One row each: a value knows no temperature, so rows are not cut by it."""
        return arrays_of([_plain(row) for row in rows], multiple=self._multiple)

    def _laid_out(self, rows: Sequence[TrainRow], told: dict[str, list[float]]) -> Floats:
        """Numbers a trained token, in the layout of the rows' arrays."""
        carrying = [msgspec.structs.replace(_plain(row), advantages=told[row.key]) for row in rows]
        return arrays_of(carrying, multiple=self._multiple).advantage_R_S


def _plain(row: TrainRow) -> TrainRow:
    return msgspec.structs.replace(row, spans=[Span(s.start, s.end, 1.0) for s in row.spans])


def launch_critic(composed: Any, pool: Any, *, seed: int) -> Critic:
    """Start a worker on every GPU of the pool, beside the policy's; ``composed`` is verl's whole configuration."""
    from functools import partial

    import ray
    from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.device import get_device_name
    from verl.workers.config import TrainingWorkerConfig
    from verl.workers.utils.losses import value_loss

    from swarm.server.engine_verl.critic_worker import SwarmCritic

    critic = omega_conf_to_dataclass(composed.critic)
    engine = critic.engine
    engine.use_dynamic_bsz = critic.use_dynamic_bsz
    engine.max_token_len_per_gpu = critic.ppo_max_token_len_per_gpu
    engine.infer_max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu
    engine.micro_batch_size_per_gpu = critic.ppo_micro_batch_size_per_gpu
    engine.infer_micro_batch_size_per_gpu = critic.ppo_infer_micro_batch_size_per_gpu
    made = TrainingWorkerConfig(
        model_type="value_model",
        model_config=critic.model,
        engine_config=engine,
        optimizer_config=critic.optim,
        checkpoint_config=critic.checkpoint,
    )
    workers = RayClassWithInitArgs(cls=ray.remote(SwarmCritic), config=made)
    group = RayWorkerGroup(
        resource_pool=pool, ray_cls_with_init=workers, device_name=get_device_name()
    )
    group.begin(seed)
    group.set_loss_fn(partial(value_loss, config=critic))
    ranks = group.world_size // engine.ulysses_sequence_parallel_size
    multiple = row_multiple(composed, ranks, critic=True)
    return Critic(group, omega_conf_to_dataclass(composed.algorithm), multiple=multiple)
