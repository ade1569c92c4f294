"""Writes what the installed verl computes for given rows: ``python tests/swarm/engine_verl/parity/make.py FOLDER`` (verl's environment).

The committed files are what the default test run compares the embedded engine with, so that it needs no verl.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT = Path(__file__).parents[4]
LOW, HIGH, KL = 0.2, 0.28, 0.05
GROUPS = [[1.0, 0.0, 0.0, 1.0], [0.25, -1.5, 3.0], [2.0, 2.0, 2.0], [0.1, 0.2]]


def inputs():
    """Arrays of rows, what a moved policy and a reference say of them."""
    from swarm.server.engine_verl.batches import arrays_of

    sys.path.insert(0, str(ROOT / "tests/swarm/engine_verl"))
    from conftest import made_rows

    arrays = arrays_of(made_rows(), multiple=4)
    draw = np.random.default_rng(5)
    shape = arrays.old_R_S.shape
    new = (arrays.old_R_S + draw.normal(0, 0.4, shape)).astype(np.float32)
    reference = (arrays.old_R_S + draw.normal(0, 0.3, shape)).astype(np.float32)
    return arrays, new, reference


def loss_of_verl(arrays, new, reference, kl_coef):
    """Loss and its gradient towards each log-probability, as a training worker computes them."""
    import torch
    from verl.trainer.config import CheckpointConfig  # noqa: F401 - registers verl's dataclasses
    from verl.workers.config import ActorConfig

    from swarm.server.engine_verl.keys import NO_DUAL_CLIP
    from swarm.server.engine_verl.losses import weighted_policy_loss
    from swarm.server.engine_verl.tensors import tensordict_of

    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_mini_batch_size=1,
        ppo_micro_batch_size_per_gpu=1,
        use_dynamic_bsz=False,
        clip_ratio=LOW,
        clip_ratio_low=LOW,
        clip_ratio_high=HIGH,
        clip_ratio_c=NO_DUAL_CLIP,
        loss_agg_mode="token-sum",
    )
    data = tensordict_of(arrays, reference_R_S=reference, kl_coef=kl_coef, dp_size=1)
    logprob = torch.tensor(new, requires_grad=True)
    rows = [
        torch.cat([logprob[i, : n - 1], torch.zeros(1)])
        for i, n in enumerate(arrays.length_R.tolist())
    ]
    output = {"log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}
    loss, _ = weighted_policy_loss(config, output, data)
    loss.backward()
    return float(loss.detach()), logprob.grad.numpy()


def advantages_of_verl():
    """One advantage an episode, by verl's estimators."""
    import torch
    from verl.trainer.ppo import core_algos

    rewards = torch.tensor([r for group in GROUPS for r in group])[:, None]
    index = np.array([i for i, group in enumerate(GROUPS) for _ in group])
    mask = torch.ones_like(rewards)
    config = SimpleNamespace(get=lambda _name, default=None: default)
    found = {
        "grpo": core_algos.compute_grpo_outcome_advantage(rewards, mask, index),
        "grpo_no_std": core_algos.compute_grpo_outcome_advantage(
            rewards, mask, index, norm_adv_by_std_in_grpo=False
        ),
        "rloo": core_algos.compute_rloo_outcome_advantage(rewards, mask, index, config=config),
    }
    return {name: out[0][:, 0].numpy() for name, out in found.items()}


def write(folder):
    """Write loss.npz and advantages.npz into ``folder``."""
    arrays, new, reference = inputs()
    plain, plain_gradient = loss_of_verl(arrays, new, reference, 0.0)
    kl, kl_gradient = loss_of_verl(arrays, new, reference, KL)
    np.savez(
        folder / "loss.npz",
        trained=arrays.trained_R_S,
        old=arrays.old_R_S,
        new=new,
        reference=reference,
        advantage=arrays.advantage_R_S,
        weight=arrays.weight_R_S,
        plain=plain,
        plain_gradient=plain_gradient,
        kl=kl,
        kl_gradient=kl_gradient,
    )
    np.savez(folder / "advantages.npz", **advantages_of_verl())


if __name__ == "__main__":
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "swarm.server.engine_verl.platform_cpu")
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    write(Path(sys.argv[1]))
