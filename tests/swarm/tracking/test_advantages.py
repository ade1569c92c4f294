from __future__ import annotations

import math

import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.tracking.advantages import ALGORITHMS, group_advantages

REWARDS = [1.0, 0.0, 0.0, 3.0]  # mean 1, deviations 0 -1 -1 2, population variance 6/4


def test_grpo_divides_the_deviation_by_the_population_standard_deviation() -> None:
    std = math.sqrt(1.5)
    expected = [0.0, -1 / (std + 1e-6), -1 / (std + 1e-6), 2 / (std + 1e-6)]
    assert group_advantages("grpo", REWARDS) == pytest.approx(expected, abs=1e-12)


def test_grpo_no_std_is_the_deviation_from_the_mean() -> None:
    assert group_advantages("grpo_no_std", REWARDS) == [0.0, -1.0, -1.0, 2.0]


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    # others' means: 3/3, 4/3, 4/3, 1/3
    expected = [0.0, -4 / 3, -4 / 3, 8 / 3]
    assert group_advantages("rloo", REWARDS) == pytest.approx(expected)


def test_reinforce_is_the_reward_itself() -> None:
    assert group_advantages("reinforce", REWARDS) == REWARDS


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("rewards", [[], [5.0], [0.3, 0.3, 0.3], [0.0, 0.0]])
def test_a_group_without_a_preference_gets_zeros_whatever_the_algorithm(
    name: str, rewards: list[float]
) -> None:
    assert group_advantages(name, rewards) == [0.0] * len(rewards)


@pytest.mark.parametrize("name", ["grpo", "grpo_no_std", "rloo"])
def test_baselined_advantages_sum_to_zero_and_keep_the_order_of_rewards(name: str) -> None:
    rewards = [0.25, 1.0, -2.0, 0.0, 0.5]
    advantages = group_advantages(name, rewards)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
    by_reward = sorted(range(5), key=rewards.__getitem__)
    assert by_reward == sorted(range(5), key=advantages.__getitem__)


def test_an_unknown_algorithm_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError) as caught:
        group_advantages("ppo", [1.0, 0.0])
    assert "'rloo'" in caught.value.hint
