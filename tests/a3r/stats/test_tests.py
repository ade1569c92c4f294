"""Tests and corrections against hand-computed values and scipy."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from a3r.stats.tests import (
    benjamini_hochberg,
    holm,
    holm_both_directions,
    smallest_resolvable_gain,
    t_test_greater,
    t_test_less,
)

PS = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_one_sided_t_agrees_with_scipy_in_both_directions():
    values = [0.11, 0.09, 0.16, 0.07]
    theirs = stats.ttest_1samp(values, 0.05, alternative="greater").pvalue
    assert t_test_greater(values, 0.05) == pytest.approx(float(theirs), rel=1e-9)
    assert t_test_less(values, 0.05) == pytest.approx(1 - float(theirs), rel=1e-9)


def test_one_value_has_no_p_and_no_spread_is_no_certainty():
    assert t_test_greater([0.3], 0.0) is None
    assert [t_test_greater([0.3, 0.3], mu) for mu in (0.2, 0.3, 0.4)] == [1.0, 1.0, 1.0]


def test_holm_equals_the_hand_computed_adjustment():
    # sorted .005 .01 .03 .04 -> x4 x3 x2 x1 = .02 .03 .06 .04, made monotone: .02 .03 .06 .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(PS)
def test_holm_never_lowers_a_p_keeps_the_order_and_is_at_least_as_strict_as_bh(ps: list[float]):
    strict, loose = holm(ps), benjamini_hochberg(ps)
    assert all(p <= b <= h + 1e-12 <= 1 + 1e-12 for p, b, h in zip(ps, loose, strict, strict=True))
    ranked = [h for _, h in sorted(zip(ps, strict, strict=True))]
    assert ranked == sorted(ranked)


@given(PS)
def test_bh_agrees_with_scipy(ps: list[float]):
    assert benjamini_hochberg(ps) == pytest.approx(list(stats.false_discovery_control(ps)))


@pytest.mark.parametrize("bad", [[1.1], [-0.1], [None], [float("nan")]])
def test_corrections_refuse_what_is_no_p_value(bad: list[float]):
    for correct in (holm, benjamini_hochberg):
        with pytest.raises(ValueError, match=r"p-value|missing"):
            correct(bad)


def test_family_of_null_cells_is_seldom_called_a_win():
    rng, wins = random.Random(5), 0
    for _ in range(400):
        ps = [t_test_greater([rng.gauss(0, 1) for _ in range(4)], 0.0) or 0 for _ in range(20)]
        wins += min(holm(ps)) < 0.05
    assert wins / 400 <= 0.075  # 5 % and three standard errors


def test_smallest_resolvable_gain_is_exactly_where_the_test_turns_significant():
    sd, n, alpha, family = 0.02, 4, 0.05, 4
    gain = smallest_resolvable_gain(sd, n, alpha, family)
    assert gain is not None
    spread = [-1.5, -0.5, 0.5, 1.5]
    unit = (sum(x * x for x in spread) / 3) ** 0.5
    values = [gain + x * sd / unit for x in spread]
    p = t_test_greater(values, 0.0)
    assert p is not None
    assert p * family == pytest.approx(alpha, rel=1e-6)
    assert smallest_resolvable_gain(sd, 1, alpha, family) is None


def test_both_directions_share_one_family_and_a_missing_test_is_not_forgotten():
    greater, less = holm_both_directions([0.01, None], [0.99, None])
    assert greater == [pytest.approx(0.04), None]
    assert less == [1.0, None]
    with pytest.raises(ValueError, match="one p a test"):
        holm_both_directions([0.1], [])


def test_a_single_test_resolves_no_more_than_the_two_sided_interval_allows():
    # A cell counts as training only when the two-sided interval clears the threshold too.
    alone, pair = (smallest_resolvable_gain(0.02, 4, 0.05, family) for family in (1, 2))
    assert alone == pair
