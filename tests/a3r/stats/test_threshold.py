"""The threshold's estimate, its confidence set, and censoring."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from a3r.stats.threshold import LevelSample, isotonic, threshold

VALUES = st.lists(st.floats(-10, 10), min_size=1, max_size=9)
SPREAD = (-0.01, 0.0, 0.01)


def levels(*means: float, spread: tuple[float, ...] = SPREAD) -> list[LevelSample]:
    return [LevelSample(2.0**i, tuple(m + d for d in spread)) for i, m in enumerate(means)]


@given(VALUES, st.randoms())
def test_isotonic_fit_agrees_with_scipy(values: list[float], rng: random.Random):
    weights = [rng.uniform(0.5, 4) for _ in values]
    theirs = isotonic_regression(values, weights=weights).x
    assert isotonic(values, weights) == pytest.approx(list(theirs), abs=1e-9)


def test_isotonic_fit_of_the_textbook_case_pools_the_violators():
    # Barlow et al. 1972 in small: 1, 3, 2, 4 with equal weights gives 1, 2.5, 2.5, 4
    assert isotonic([1, 3, 2, 4], [1, 1, 1, 1]) == [1, 2.5, 2.5, 4]
    assert isotonic([3, 1], [3, 1]) == [2.5, 2.5]
    with pytest.raises(ValueError, match="positive weight"):
        isotonic([1.0], [0.0])


def test_a_clear_step_is_found_and_bracketed_to_one_level():
    found = threshold(levels(0.0, 0.0, 0.3, 0.3), 0.1)
    assert (found.estimate, found.candidates) == (4.0, (4.0,))
    assert (found.above_possible, found.below_possible, found.violation) == (False, False, 0.0)
    assert found.support == (0.0, 0.0, 1.0, 0.0, 0.0)


def test_a_step_outside_the_grid_is_censored_and_never_invented():
    low, high = threshold(levels(0.3, 0.3), 0.1), threshold(levels(0.0, 0.0), 0.1)
    assert (low.estimate, low.candidates, low.below_possible) == (1.0, (1.0,), True)
    assert (high.estimate, high.candidates, high.above_possible) == (None, (), True)
    assert not low.above_possible
    assert not high.below_possible


def test_an_undecided_level_widens_the_set_instead_of_moving_the_claim():
    means = levels(0.0, 0.0, 0.11, 0.3)
    means[2] = LevelSample(4.0, (0.0, 0.11, 0.22))
    found = threshold(means, 0.1)
    assert found.estimate == 4.0
    assert found.candidates == (4.0, 8.0)
    assert 0.3 < found.support[2] < 0.7


def test_a_single_seed_shows_nothing_and_stops_the_sequence_unless_the_spread_is_pooled():
    samples = levels(0.0, 0.0, 0.3, 0.3)
    samples[3] = LevelSample(8.0, (0.3,))
    assert threshold(samples, 0.1).above_possible
    assert threshold(samples, 0.1, equal_spread=True).candidates == (4.0,)
    alone = threshold([LevelSample(1.0, (0.3,))], 0.1)
    assert (alone.estimate, alone.candidates, alone.support) == (1.0, (1.0,), (0.0, 0.0))


def test_a_response_that_falls_is_mended_and_the_mending_is_said():
    found = threshold(levels(0.0, 0.3, 0.05, 0.3), 0.1)
    assert found.violation == pytest.approx(0.25)
    assert list(found.fit) == sorted(found.fit)


@pytest.mark.parametrize("equal_spread", [False, True])
def test_the_set_holds_the_true_threshold_in_at_least_95_of_100_campaigns(equal_spread: bool):
    rng, hits = random.Random(3), 0
    for _ in range(400):
        first = rng.randrange(6)
        samples = [
            LevelSample(
                float(i), tuple(rng.gauss(0.11 if i >= first else 0.09, 0.02) for _ in range(3))
            )
            for i in range(5)
        ]
        found = threshold(samples, 0.1, equal_spread=equal_spread)
        hits += (float(first) in found.candidates) if first < 5 else found.above_possible
    assert hits / 400 >= 0.93  # 95 % less two standard errors


def test_the_same_samples_give_the_same_answer_in_any_order():
    samples = levels(0.0, 0.1, 0.12, 0.3)
    assert threshold(samples, 0.1) == threshold(samples[::-1], 0.1)


@pytest.mark.parametrize("bad", [[], [LevelSample(1, (0.1,))] * 2, [LevelSample(1, ())]])
def test_no_level_a_level_twice_and_an_empty_one_are_refused(bad: list[LevelSample]):
    with pytest.raises(ValueError, match="at least one level"):
        threshold(bad, 0.1)
