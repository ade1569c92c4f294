"""The loss and the advantages of both engines are the same numbers; verl's are committed, `make test-verl` makes them anew."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from swarm.server.engine_verl.batches import arrays_of
from swarm.server.engine_verl.figures import figures_of
from swarm.server.tracking.advantages import group_advantages
from swarm.server.train.losses import k3, ppo_clip

PARITY = Path(__file__).parent / "parity"
LOW, HIGH, KL = 0.2, 0.28, 0.05
GROUPS = [[1.0, 0.0, 0.0, 1.0], [0.25, -1.5, 3.0], [2.0, 2.0, 2.0], [0.1, 0.2]]


@pytest.fixture(scope="module")
def verl():
    with np.load(PARITY / "loss.npz") as arrays:
        return dict(arrays)


def test_the_committed_arrays_are_of_the_rows_that_these_tests_make(verl, rows):
    arrays = arrays_of(rows, multiple=4)
    np.testing.assert_array_equal(arrays.trained_R_S, verl["trained"])
    np.testing.assert_array_equal(arrays.weight_R_S, verl["weight"])


@pytest.mark.parametrize(("name", "kl_coef"), [("plain", 0.0), ("kl", KL)])
def test_loss_and_gradient_are_those_of_verl(verl, name, kl_coef):
    at = verl["trained"]
    new = torch.tensor(verl["new"], requires_grad=True)
    mask = torch.tensor(at)
    old, advantage, weight, reference = (
        torch.tensor(verl[key])[mask] for key in ("old", "advantage", "weight", "reference")
    )
    token = ppo_clip(new[mask], old, advantage, low=LOW, high=HIGH).loss
    loss = (weight * (token + kl_coef * k3(new[mask], reference))).sum()
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(verl[name]), rel=1e-5)
    np.testing.assert_allclose(new.grad.numpy(), verl[f"{name}_gradient"], rtol=1e-5, atol=1e-8)


def test_tokens_that_do_not_train_have_no_gradient_in_verl(verl):
    assert not verl["kl_gradient"][~verl["trained"]].any()
    assert verl["kl_gradient"][verl["trained"] & (verl["weight"] > 0)].any()


def test_the_clipped_share_counts_what_the_embedded_loss_calls_clipped(verl, rows):
    arrays = arrays_of(rows, multiple=4)
    at = torch.tensor(verl["trained"])
    flat = [torch.tensor(verl[key])[at] for key in ("new", "old", "advantage")]
    clipped = ppo_clip(*flat, low=LOW, high=HIGH).clipped
    figures = figures_of(arrays, verl["new"], None, verl["reference"], low=LOW, high=HIGH)
    assert figures.clipped == int(clipped.sum()) > 0
    assert figures.tokens == int(at.sum())
    assert figures.gap == pytest.approx(float((flat[0] - flat[1]).abs().max()), rel=1e-6)
    assert figures.kl == pytest.approx(
        float(k3(flat[0], torch.tensor(verl["reference"])[at]).sum()), rel=1e-5
    )


@pytest.mark.parametrize("name", ["grpo", "grpo_no_std", "rloo"])
def test_advantages_are_those_of_verl(name):
    """But for one convention: verl's GRPO divides by the sample's deviation (n - 1), ours as the paper by the population's."""
    with np.load(PARITY / "advantages.npz") as arrays:
        theirs = arrays[name]
    at = 0
    for rewards in GROUPS:
        ours = np.array(group_advantages(name, rewards))
        if name == "grpo":
            ours *= math.sqrt((len(rewards) - 1) / len(rewards))
        np.testing.assert_allclose(ours, theirs[at : at + len(rewards)], rtol=1e-4, atol=1e-6)
        at += len(rewards)


@pytest.mark.verl
@pytest.mark.timeout(900)
def test_the_installed_verl_still_gives_the_committed_numbers(tmp_path):
    subprocess.run([sys.executable, PARITY / "make.py", tmp_path], check=True, timeout=800)
    for name in ("loss.npz", "advantages.npz"):
        with np.load(tmp_path / name) as fresh, np.load(PARITY / name) as committed:
            assert set(fresh) == set(committed)
            for key in fresh:
                np.testing.assert_allclose(fresh[key], committed[key], rtol=1e-5, atol=1e-7)
