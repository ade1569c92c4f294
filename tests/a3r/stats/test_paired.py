"""Pairs by seed, and equivalence beside difference."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from a3r.stats.equivalence import Relation, relation, tost_equivalence, welch_equivalence
from a3r.stats.paired import correlation, paired_difference

# Student's sleep data (1908): extra hours under two drugs, same ten people; t = -4.0621, p = 0.002833
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def by_seed(values: list[float]) -> dict[int, float | None]:
    return dict(enumerate(values))


def test_students_sleep_data_gives_the_published_result():
    found = paired_difference(by_seed(FIRST), by_seed(SECOND))
    assert (found.n, found.alone) == (10, ())
    assert found.difference == pytest.approx(-1.58)
    assert found.low == pytest.approx(-2.4599, abs=1e-4)
    assert found.high == pytest.approx(-0.7001, abs=1e-4)
    assert found.p_two_sided == pytest.approx(0.002833, abs=1e-6)
    assert found.p_less == pytest.approx(0.002833 / 2, abs=1e-6)


def test_seeds_without_a_partner_are_left_out_and_named():
    found = paired_difference({1: 0.3, 2: 0.4, 5: 0.9}, {2: 0.1, 1: 0.2, 7: 0.0})
    assert (found.seeds, found.alone) == ((1, 2), (5, 7))
    assert found.differences == pytest.approx((0.1, 0.3))


def test_too_few_pairs_have_no_interval_and_equal_differences_prove_nothing():
    assert paired_difference({1: 0.3}, {2: 0.1}).difference is None
    one = paired_difference({1: 0.3}, {1: 0.1})
    assert (one.low, one.p_greater, one.sd) == (None, None, None)
    flat = paired_difference({1: 0.5, 2: 0.75}, {1: 0.25, 2: 0.5})
    assert (flat.difference, flat.low, flat.p_two_sided) == (0.25, None, 1.0)
    with pytest.raises(ValueError, match="missing"):
        paired_difference({1: None}, {1: 0.1})


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=8))
def test_swapping_the_conditions_turns_every_sign(pairs: list[tuple[float, float]]):
    a, b = by_seed([x for x, _ in pairs]), by_seed([y for _, y in pairs])
    one, other = paired_difference(a, b), paired_difference(b, a)
    assert one.difference == pytest.approx(-(other.difference or 0.0))
    assert one.p_greater == pytest.approx(other.p_less)
    assert one.p_two_sided == pytest.approx(other.p_two_sided)
    if one.low is not None:
        assert one.low == pytest.approx(-(other.high or 0.0))


def test_correlation_says_whether_pairing_is_worth_it():
    found = correlation(dict(enumerate(FIRST)), dict(enumerate(SECOND)))
    assert found == pytest.approx(float(stats.pearsonr(FIRST, SECOND).statistic))
    assert correlation({1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0}) is None
    assert correlation({1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.0, 2: 2.0, 3: 3.0}) is None


def test_equivalence_needs_both_sides_and_two_values():
    assert tost_equivalence([0.001, -0.001, 0.0], 0.05).equivalent
    assert not tost_equivalence([0.06, 0.04, 0.05], 0.05).equivalent
    assert tost_equivalence([0.0], 0.05).p is None
    assert welch_equivalence([0.1], [0.1, 0.2], 0.05).p is None
    assert welch_equivalence([0.1, 0.1], [0.1, 0.1], 0.05).p == 1.0
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="margin"):
            tost_equivalence([0.1, 0.2], bad)


def test_welch_equivalence_is_two_shifted_welch_tests():
    a, b, margin = [0.31, 0.29, 0.33, 0.30], [0.30, 0.28, 0.33], 0.05
    shifted = [
        stats.ttest_ind([x + margin for x in a], b, equal_var=False, alternative="greater"),
        stats.ttest_ind([x - margin for x in a], b, equal_var=False, alternative="less"),
    ]
    expected = max(float(found.pvalue) for found in shifted)
    assert welch_equivalence(a, b, margin).p == pytest.approx(expected)


def test_equivalence_is_claimed_wrongly_in_at_most_five_of_a_hundred_campaigns():
    rng, wrong = random.Random(8), 0
    for _ in range(2000):  # the true difference is exactly the margin
        a, b = ([rng.gauss(mu, 0.01) for _ in range(4)] for mu in (0.05, 0.0))
        wrong += welch_equivalence(a, b, 0.05).equivalent
    assert wrong / 2000 <= 0.06


def test_a_shown_difference_keeps_its_direction_though_it_is_negligible():
    assert relation(0.01, 0.001, 0.2, 0.05).relation is Relation.GREATER
    small = relation(-0.01, 0.001, 0.001, 0.05)
    assert (small.relation, small.negligible) == (Relation.LESS, True)
    assert relation(0.0, 0.9, 0.01, 0.05).relation is Relation.EQUIVALENT
    assert relation(0.2, 0.3, 0.9, 0.05).relation is Relation.UNRESOLVED
    assert relation(0.2, None, None, 0.05).relation is Relation.UNRESOLVED
