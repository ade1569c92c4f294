"""Collapse is named where it can be seen, and not where it can not."""

import random

import pytest

from a3r.stats.modes import find_modes, noise_of_others

NORMAL = random.Random(11)
NOISE = (0.02, 12.0)


def normal(n: int) -> list[float]:
    return [NORMAL.gauss(0, 1) for _ in range(n)]


def test_a_collapsed_seed_among_trained_ones_is_named_with_both_camps():
    found = find_modes([0.31, -0.28, 0.29], NOISE, smallest_gap=0.05)
    assert (found.bimodal, found.low, found.high) == (True, (-0.28,), (0.29, 0.31))
    assert found.gap == pytest.approx(0.57)


def test_a_gap_below_the_smallest_effect_that_matters_is_never_a_collapse():
    assert find_modes([0.0, 0.1], (0.001, 12.0), smallest_gap=0.05).bimodal
    assert not find_modes([0.0, 0.04], (0.001, 12.0), smallest_gap=0.05).bimodal


def test_three_seeds_alone_can_not_tell_collapse_from_chance_and_say_so():
    found = find_modes([0.31, -0.28, 0.29])
    assert (found.testable, found.bimodal) == (False, False)
    assert not find_modes([0.3], NOISE).testable
    assert find_modes([]).high == ()


def test_many_seeds_show_their_own_camps():
    found = find_modes([0.0, 0.01, 0.02, 0.30, 0.31, 0.33, 0.32])
    assert (found.testable, found.bimodal, len(found.low)) == (True, True, 3)
    assert not find_modes([0.5] * 6).testable


@pytest.mark.parametrize(("n", "known"), [(2, True), (3, True), (8, True), (5, False), (9, False)])
def test_normal_noise_is_called_a_collapse_in_one_of_a_hundred_samples(n: int, known: bool):
    # the critical values are 99th percentiles, so this simulation repeats the one that made them
    noise = (1.0, 1e6) if known else None
    called = sum(find_modes(normal(n), noise).bimodal for _ in range(6000))
    assert 0.006 <= called / 6000 <= 0.014


def test_noise_of_others_is_not_moved_by_a_minority_that_collapsed_too():
    samples = [[0.0, 0.3, 0.02], [0.31, 0.0, 0.29], *([0.3, 0.32, 0.28] for _ in range(4))]
    found = noise_of_others(samples, 0)
    assert found is not None
    assert found[0] < 0.03
    assert find_modes(samples[0], found).bimodal
    assert noise_of_others(samples[:2], 0) is None


def test_a_missing_value_is_refused():
    with pytest.raises(ValueError, match="missing"):
        find_modes([0.1, None])
