"""verl's losses under our weights do not depend on how rows are dealt out to ranks and micro batches. Needs `make setup-verl`."""

import numpy as np
import pytest

from swarm.server.engine_verl.batches import arrays_of

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

LOSSES = ("vanilla", "gspo", "cispo", "dppo_tv", "dppo_kl", "gpg", "dro")
"""clip_cov and kl_cov are left out: they choose tokens among those of a micro batch, so that its size matters by design."""
KL, ENTROPY = 0.05, 0.02


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "swarm.server.engine_verl.platform_cpu")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def config(name):
    from verl.trainer.config import CheckpointConfig  # noqa: F401 - registers verl's dataclasses
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    return ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_mini_batch_size=1,
        ppo_micro_batch_size_per_gpu=1,
        use_dynamic_bsz=False,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=1e9,
        loss_agg_mode="token-sum",
        entropy_coeff=ENTROPY,
        policy_loss=PolicyLossConfig(loss_mode=name, dro_beta=0.1),
    )


def of_rows(rows, name, ranks, new):
    """Loss and its gradient towards every log-probability of these rows, as one of so many ranks computes them."""
    import torch

    from swarm.server.engine_verl.losses import weighted_policy_loss
    from swarm.server.engine_verl.tensors import tensordict_of

    arrays = arrays_of(rows, multiple=3)
    shape = arrays.old_R_S.shape
    reference = np.full(shape, -1.5, np.float32)
    data = tensordict_of(arrays, reference_R_S=reference, kl_coef=KL, dp_size=ranks)
    nested, leaves = [], []
    for key, length in zip(arrays.keys, arrays.length_R.tolist(), strict=True):
        told = new[key][: length - 1] if key else np.zeros(length - 1, np.float32)
        leaves.append(torch.tensor(told, requires_grad=True))
        nested.append(torch.cat([leaves[-1], torch.zeros(1)]))
    output = {
        "log_probs": torch.nested.as_nested_tensor(nested, layout=torch.jagged),
        "entropy": torch.nested.as_nested_tensor([-one for one in nested], layout=torch.jagged),
    }
    loss, _ = weighted_policy_loss(config(name), output, data)
    loss.backward()
    found = {}
    for key, trained, leaf in zip(arrays.keys, arrays.trained_R_S, leaves, strict=True):
        if key:  # two temperatures: two rows of one key, each with the tokens of its own
            at = np.zeros(max(len(row.ids) for row in rows) - 1)
            at[: len(leaf)] = leaf.grad.numpy() * trained[: len(leaf)]
            found[key] = found.get(key, 0) + at[: len(leaf)]
    return float(loss.detach()), found


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sum_is_the_same_over_ranks_and_micro_batches(rows, loss):
    draw = np.random.default_rng(3)
    new = {r.key: (-1.5 + draw.normal(0, 0.4, len(r.ids))).astype(np.float32) for r in rows}
    whole, gradient = of_rows(rows, loss, 1, new)
    # Two ranks; the first deals its rows out to two micro batches. verl averages over ranks.
    ranks = [[rows[0:3], rows[3:7]], [rows[7:12]]]
    parts = [[of_rows(micro, loss, 2, new) for micro in mine] for mine in ranks]
    together = np.mean([sum(value for value, _ in mine) for mine in parts])
    assert together == pytest.approx(whole, rel=1e-4)
    assert max(np.abs(one).max() for one in gradient.values()) > 0
    for _, found in (one for mine in parts for one in mine):
        for key, towards in found.items():
            np.testing.assert_allclose(towards / 2, gradient[key], rtol=1e-4, atol=1e-7)
