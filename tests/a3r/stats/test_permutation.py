"""Permutation tests against enumeration by hand, scipy, and their own limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from a3r.stats.permutation import (
    Side,
    permutation_attainable_p,
    permutation_test,
    sign_flip_attainable_p,
    sign_flip_test,
)

SAMPLE = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=5)


def test_attainable_p_counts_the_arrangements():
    assert permutation_attainable_p(3, 3) == pytest.approx(1 / 20)
    assert permutation_attainable_p(3, 3, two_sided=True) == pytest.approx(1 / 10)
    assert permutation_attainable_p(2, 3, two_sided=True) == pytest.approx(1 / 10)
    assert sign_flip_attainable_p(4) == 1 / 16
    assert sign_flip_attainable_p(1, two_sided=True) == 1.0
    for function in (lambda: permutation_attainable_p(0, 3), lambda: sign_flip_attainable_p(0)):
        with pytest.raises(ValueError, match="at least one"):
            function()


def test_complete_separation_of_three_against_three_gives_one_in_twenty():
    found = permutation_test([4, 5, 6], [1, 2, 3], "greater")
    assert (found.p, found.exact, found.arrangements) == (1 / 20, True, 20)
    assert found.p == found.attainable
    assert permutation_test([4, 5, 6], [1, 2, 3]).p == 1 / 10
    assert permutation_test([4, 5, 6], [1, 2, 3], "less").p == 1.0


def test_fisher_randomisation_of_darwins_plants_equals_the_published_p():
    # Fisher 1935, section 21: Darwin's fifteen pairs in eighths of an inch, 1,726 of 32,768 arrangements two-sided, 5.267 %
    darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    found = sign_flip_test([float(x) for x in darwin])
    assert found.arrangements == 32_768
    assert found.p == pytest.approx(
        0.05267, abs=0.007
    )  # drawn: more arrangements than are enumerated


def gap(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def distance(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return np.abs(gap(x, y, axis))


@pytest.mark.parametrize("side", ["greater", "less", "two-sided"])
@settings(max_examples=15)
@given(a=SAMPLE, b=SAMPLE)
def test_exact_p_agrees_with_scipy(side: Side, a: list[float], b: list[float]):
    both = side == "two-sided"
    theirs = stats.permutation_test(
        (a, b),
        distance if both else gap,
        alternative="greater" if both else side,
        vectorized=True,
        n_resamples=np.inf,
    )
    ours = permutation_test(a, b, side)
    assert ours.p == pytest.approx(float(theirs.pvalue), abs=1e-9)
    assert ours.p >= ours.attainable - 1e-12


def test_large_samples_are_drawn_with_a_seed_and_never_reach_zero():
    a, b = [float(x) for x in range(12)], [float(x) + 100 for x in range(12)]
    found = permutation_test(a, b, "less", seed=1)
    assert (found.exact, found.p) == (False, pytest.approx(1e-4))
    assert found == permutation_test(a, b, "less", seed=1)


def test_equal_values_prove_nothing():
    assert permutation_test([0.1] * 3, [0.1] * 3).p == 1.0
    assert sign_flip_test([0.0, 0.0]).p == 1.0
    assert sign_flip_test([0.3, 0.3, 0.3], "greater").p == 1 / 8


@pytest.mark.parametrize("bad", [[], [None], [float("nan")]])
def test_nothing_and_missing_values_are_refused(bad: list[float]):
    with pytest.raises(ValueError, match=r"at least one|missing"):
        sign_flip_test(bad)
    with pytest.raises(ValueError, match=r"at least one|missing"):
        permutation_test(bad, [1.0])
