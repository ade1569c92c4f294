import math

import pytest
import torch

from swarm.server.train.losses import entropy, ppo_clip


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
