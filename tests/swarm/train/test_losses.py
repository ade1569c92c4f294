import math

import pytest
import torch

from swarm.server.train.losses import entropy, k3, ppo_clip, truncated_importance


def test_ppo_clip_equals_the_hand_computed_cases():
    # ratio, advantage -> -min(r A, clip(r, 0.8, 1.28) A), clipped
    cases = [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2.56, True),  # a good token is not pushed past 1.28
        (0.5, 2.0, -1.0, False),  # a good token that fell is pulled back
        (1.5, -2.0, 3.0, False),  # a bad token that rose is pulled back
        (0.5, -2.0, 1.6, True),  # a bad token is not pushed below 0.8
        (1.1, 0.0, 0.0, False),
    ]
    ratio, advantage, loss, clipped = zip(*cases, strict=True)
    old = torch.full((6,), -1.25)
    result = ppo_clip(
        old + torch.tensor(ratio).log(), old, torch.tensor(advantage), low=0.2, high=0.28
    )
    torch.testing.assert_close(result.loss, torch.tensor(loss), atol=1e-6, rtol=0)
    assert result.clipped.tolist() == list(clipped)


def test_a_clipped_token_has_no_gradient_and_an_on_policy_one_has_minus_the_advantage():
    logprobs = torch.tensor([-1.0, math.log(2.0) - 1.0], requires_grad=True)
    old = torch.tensor([-1.0, -1.0])
    ppo_clip(logprobs, old, torch.tensor([3.0, 3.0]), low=0.2, high=0.2).loss.sum().backward()
    assert logprobs.grad.tolist() == [-3.0, 0.0]


@pytest.mark.parametrize("size", [2, 7])
def test_entropy_of_a_uniform_choice_is_the_log_of_its_size(size):
    uniform = torch.full((1, size), -math.log(size))
    assert float(entropy(uniform)[0]) == pytest.approx(math.log(size), abs=1e-6)


def test_truncated_importance_equals_the_hand_computed_cases_and_has_no_gradient():
    behaviour = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    target = behaviour + torch.tensor([1.0, 0.5, 1.5, 9.0]).log()
    target.requires_grad_()
    importance = truncated_importance(target, behaviour, cap=1.5)
    torch.testing.assert_close(importance.weight, torch.tensor([1.0, 0.5, 1.5, 1.5]))
    assert importance.truncated.tolist()[:2] == [False, False]
    assert importance.truncated.tolist()[3]
    assert not importance.weight.requires_grad


def test_an_importance_that_is_not_a_number_stays_one():
    weight = truncated_importance(torch.tensor([-1.0]), torch.tensor([math.nan]), cap=2.0).weight
    assert math.isnan(float(weight[0]))


def test_k3_equals_the_hand_computed_cases():
    # d = reference - policy -> e^d - 1 - d
    policy = torch.tensor([-1.0, -1.0, -2.0])
    reference = torch.tensor([-1.0, -2.0, -1.0])
    expected = torch.tensor([0.0, math.exp(-1.0), math.e - 2.0])
    torch.testing.assert_close(k3(policy, reference), expected)


def test_the_mean_of_k3_over_samples_of_the_policy_is_the_kl_divergence():
    torch.manual_seed(0)
    policy, reference = (torch.randn(6).log_softmax(0) for _ in range(2))
    exact = float((policy.exp() * (policy - reference)).sum())
    drawn = torch.multinomial(policy.exp(), 200_000, replacement=True)
    assert float(k3(policy[drawn], reference[drawn]).mean()) == pytest.approx(exact, rel=0.03)
