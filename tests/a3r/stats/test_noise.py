"""The noise floor of repeats and of evaluations."""

import math
import random

import pytest
from scipy import stats

from a3r.stats.noise import binomial_sd, noise_floor, robust_sd, training_sd


def test_floor_of_one_group_equals_the_textbook_interval_of_a_standard_deviation():
    # 8, 10, 12: sd 2, df 2; chi2 quantiles 0.0506 and 7.3778 from a printed table
    found = noise_floor([[8.0, 10.0, 12.0]])
    assert found is not None
    assert (found.sd, found.df, found.groups) == (2.0, 2, 1)
    assert found.low == pytest.approx(2 * math.sqrt(2 / 7.3778), rel=1e-4)
    assert found.high == pytest.approx(2 * math.sqrt(2 / 0.0506), rel=1e-3)


def test_single_values_say_nothing_and_are_left_out():
    assert noise_floor([]) is None
    assert noise_floor([[1.0], [2.0]]) is None
    found = noise_floor([[1.0], [2.0, 2.2]])
    assert found is not None
    assert (found.groups, found.df) == (1, 1)


def test_differences_that_chance_explains_are_those_of_a_t_interval():
    found = noise_floor([[0.1, 0.2, 0.3], [0.5, 0.4, 0.6]])
    assert found is not None
    expected = stats.t.ppf(0.975, 4) * 0.1 * math.sqrt(2 / 3)
    assert found.difference(3, 3) == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least one value"):
        found.difference(0, 3)


def test_best_of_many_repeats_stays_inside_the_floor_as_often_as_it_says():
    rng, inside = random.Random(4), 0
    floor = noise_floor([[rng.gauss(0, 1) for _ in range(4)] for _ in range(200)])
    assert floor is not None
    for _ in range(2000):
        inside += abs(rng.gauss(0, 1) - rng.gauss(0, 1)) <= floor.difference(1, 1)
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)


def test_robust_sd_is_near_the_truth_and_does_not_follow_wild_groups():
    rng = random.Random(6)
    groups = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(400)]
    clean = robust_sd(groups)
    assert clean is not None
    assert clean[0] == pytest.approx(1, abs=0.1)
    wild = robust_sd(groups + [[0.0, 100.0, 50.0]] * 60)
    assert wild is not None
    assert wild[0] < 1.4
    assert robust_sd([[1.0]]) is None


def test_an_evaluation_of_fixed_weights_scatters_as_a_share_of_its_items():
    assert binomial_sd(0.5, 100) == pytest.approx(0.05)
    assert binomial_sd(1.0, 100) == 0.0
    assert training_sd(0.05, 0.03) == pytest.approx(math.sqrt(0.0025 - 0.0018))
    assert training_sd(0.01, 0.05) == 0.0
    with pytest.raises(ValueError, match="share"):
        binomial_sd(1.2, 100)
