"""verl's losses under our weights do not depend on how rows are dealt out to ranks and micro batches. Needs `make setup-verl`."""

from dataclasses import replace

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


def loss_of(arrays, name, new, *, ranks=1, **more):
    """Loss of these arrays, as one of so many ranks computes it, and what it was computed from, a tensor a row."""
    import torch

    from swarm.server.engine_verl.losses import weighted_policy_loss
    from swarm.server.engine_verl.tensors import tensordict_of

    shape = arrays.old_R_S.shape
    reference = np.full(shape, -1.5, np.float32)
    data = tensordict_of(arrays, reference_R_S=reference, kl_coef=KL, dp_size=ranks, **more)
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
    return loss, leaves


def of_rows(rows, name, ranks, new):
    """Loss and its gradient towards every log-probability of these rows."""
    arrays = arrays_of(rows, multiple=3)
    loss, leaves = loss_of(arrays, name, new, ranks=ranks)
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


def test_importance_weighs_the_policy_loss_and_no_penalty(rows):
    """As in the embedded engine (docs/concepts/asynchronous.md): the KL term has the rows' own weights."""
    draw = np.random.default_rng(5)
    new = {r.key: (-1.5 + draw.normal(0, 0.4, len(r.ids))).astype(np.float32) for r in rows}
    arrays = arrays_of(rows)
    cut_off = replace(arrays, weight_R_S=0 * arrays.weight_R_S)
    without_policy_loss = replace(arrays, advantage_R_S=0 * arrays.advantage_R_S)
    found, towards = loss_of(cut_off, "vanilla", new, scale=2.0, plain_R_S=arrays.weight_R_S)
    wanted, as_wanted = loss_of(without_policy_loss, "vanilla", new, scale=2.0)
    assert float(wanted) != 0
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    for one, other in zip(towards, as_wanted, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-8)
