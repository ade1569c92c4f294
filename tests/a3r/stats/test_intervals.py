"""Intervals against hand-computed values, tables and simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from a3r.stats.intervals import (
    mean,
    mean_interval,
    pooled_sd,
    sample_sd,
    welch_difference,
    wilson_interval,
)
from a3r.stats.tests import coverage

FINITE = st.floats(-1e3, 1e3)


def test_t_interval_of_three_values_equals_the_hand_computed_one():
    # mean 2, sd 1, t(0.975, 2) = 4.302653 from a printed table, half width 4.302653 / sqrt(3)
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.mean, found.sd, found.n) == (2.0, 1.0, 3)
    assert found.low == pytest.approx(2 - 2.484138, abs=1e-5)
    assert found.high == pytest.approx(2 + 2.484138, abs=1e-5)


def test_interval_of_one_value_has_no_bounds():
    found = mean_interval([0.3])
    assert (found.low, found.mean, found.high, found.sd) == (None, 0.3, None, None)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_a_missing_number_raises_instead_of_counting_as_zero(bad: float | None):
    for function in (mean, sample_sd, mean_interval, lambda v: welch_difference(v, [1.0, 2.0])):
        with pytest.raises(ValueError, match="missing numbers must be excluded"):
            function([0.1, bad, 0.2])


def test_mean_of_nothing_raises():
    with pytest.raises(ValueError, match="no values"):
        mean([])


def test_interval_of_three_seeds_covers_the_truth_in_95_of_100_campaigns():
    rng = random.Random(20)
    samples = [[rng.gauss(0.2, 0.05) for _ in range(3)] for _ in range(4000)]
    assert 0.94 <= coverage(samples, 0.2) <= 0.96


@given(st.lists(FINITE, min_size=2, max_size=8), st.lists(FINITE, min_size=2, max_size=8))
def test_welch_agrees_with_scipy(a: list[float], b: list[float]):
    va, vb = (sample_sd(a) or 0), (sample_sd(b) or 0)
    if va < 1e-6 or vb < 1e-6:
        return
    found = welch_difference(a, b)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    bounds = theirs.confidence_interval(0.95)
    assert found.p_two_sided == pytest.approx(float(theirs.pvalue), abs=1e-9)
    assert found.low == pytest.approx(float(bounds.low), rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(float(bounds.high), rel=1e-6, abs=1e-6)


def test_welch_without_spread_claims_nothing_and_with_one_value_has_no_bounds():
    for other in (1.0, 2.0):
        same = welch_difference([1.0, 1.0], [other, other])
        assert (same.low, same.difference, same.high) == (None, 1.0 - other, None)
        assert same.p_two_sided == 1.0
    assert welch_difference([1.0], [1.0, 2.0]).low is None


def test_wilson_interval_equals_the_published_example():
    # Newcombe 1998: 81 of 263 gives 0.2553 to 0.3662
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson_interval(0, 10)[0] == 0.0
    with pytest.raises(ValueError, match=r"0\.\.n"):
        wilson_interval(3, 2)


def test_pooled_sd_weighs_samples_by_their_degrees_of_freedom():
    # squares: 2 (df 2) and 0.5 (df 1): sqrt(2.5 / 3); the single value adds nothing
    assert pooled_sd([[1, 2, 3], [0, 1], [9]]) == pytest.approx(math.sqrt(2.5 / 3))
    with pytest.raises(ValueError, match="two values"):
        pooled_sd([[1.0]])
