"""Intervals of shares and Fisher's test against published examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from a3r.stats.proportions import clopper_pearson, fisher_greater, newcombe_difference

TRIALS = st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_clopper_pearson_equals_the_published_example_and_the_rule_of_three():
    # Newcombe 1998: 81 of 263 gives 0.2527 to 0.3676; 0 of 20 gives 0 to 0.1684
    low, high = clopper_pearson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2527, 0.3676)
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(0.1684, abs=1e-4))
    assert clopper_pearson(3, 3)[1] == 1.0


def test_newcombe_difference_equals_the_published_example():
    # Newcombe 1998, table II (a), method 10: 56/70 against 48/80: 0.2000 (0.0524, 0.3339)
    low, difference, high = newcombe_difference((56, 70), (48, 80))
    assert (round(low, 4), round(difference, 4), round(high, 4)) == (0.0524, 0.2, 0.3339)


def test_the_lady_who_tasted_tea_had_one_chance_in_seventy():
    assert fisher_greater((4, 4), (0, 4)) == pytest.approx(1 / 70)
    assert fisher_greater((3, 4), (1, 4)) == pytest.approx(17 / 70)


@given(TRIALS, TRIALS)
def test_fisher_agrees_with_scipy(a: tuple[int, int], b: tuple[int, int]):
    table = [[a[0], a[1] - a[0]], [b[0], b[1] - b[0]]]
    expected = float(stats.fisher_exact(table, alternative="greater").pvalue)
    assert fisher_greater(a, b) == pytest.approx(expected)


@pytest.mark.parametrize("bad", [(1, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(bad: tuple[int, int]):
    for function in (lambda: clopper_pearson(*bad), lambda: fisher_greater(bad, (1, 2))):
        with pytest.raises(ValueError, match=r"0\.\.n"):
            function()
    with pytest.raises(ValueError, match=r"0\.\.n"):
        newcombe_difference(bad, (1, 2))
