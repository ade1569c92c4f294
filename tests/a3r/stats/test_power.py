"""What a design can show, against published tables and simulation."""

import random

import pytest

from a3r.stats.power import design_note, power, seeds_needed, smallest_effect
from a3r.stats.tests import t_test_greater


def test_power_equals_the_published_values():
    # Cohen 1988: d = 0.5, two samples of 64, two-sided 5 %: power 0.80; d = 0.8 needs 26 a group
    assert power(0.5, 1.0, 64, 0.025, "two-sample") == pytest.approx(0.801, abs=0.002)
    assert seeds_needed(0.8, 1.0, 0.025, "two-sample") == 26
    # one sample, d = 0.5, one-sided 5 %: n = 27 (G*Power 3.1)
    assert seeds_needed(0.5, 1.0, 0.05) == 27


def test_power_agrees_with_simulation_at_three_seeds():
    rng, hits = random.Random(9), 0
    for _ in range(4000):
        p = t_test_greater([rng.gauss(0.05, 0.02) for _ in range(3)], 0.0)
        hits += p is not None and p < 0.0125
    assert power(0.05, 0.02, 3, 0.05, family=4) == pytest.approx(hits / 4000, abs=0.025)


def test_smallest_effect_has_the_wanted_power_and_shrinks_with_seeds():
    effects = [smallest_effect(0.02, n, 0.05, family=4) for n in (3, 4, 8, 16)]
    assert effects == sorted(effects, key=lambda e: -(e or 0))
    assert power(effects[0] or 0.0, 0.02, 3, 0.05, family=4) == pytest.approx(0.8, abs=1e-6)


def test_a_larger_family_needs_more_seeds():
    wanted = [seeds_needed(0.05, 0.03, 0.05, family=m) or 0 for m in (1, 4, 20)]
    assert wanted == sorted(wanted)
    assert wanted[0] < wanted[2]


def test_what_can_not_be_resolved_is_said():
    assert power(0.1, 0.02, 1, 0.05) == 0.0
    assert power(0.1, 0.0, 4, 0.05) == 0.0
    assert smallest_effect(0.02, 1, 0.05) is None
    assert seeds_needed(0.0, 0.02, 0.05) is None
    assert seeds_needed(1e-6, 1.0, 0.05) is None
    with pytest.raises(ValueError, match="family"):
        power(0.1, 0.02, 3, 0.05, family=0)


def test_note_says_that_permutation_can_not_reach_with_three_against_three():
    note = design_note(design="two-sample", n=3, family=2, alpha=0.05, sd=0.02, effect=0.1)
    assert (note.permutation_p, note.level) == (0.05, 0.025)
    assert not note.permutation_reaches
    assert note.resolvable
    assert design_note(
        design="paired", n=6, family=2, alpha=0.05, sd=0.02, effect=0.1
    ).permutation_reaches


def test_note_without_a_measured_spread_promises_nothing():
    note = design_note(design="threshold", n=4, family=2, alpha=0.05, sd=None, effect=0.05)
    assert (note.power, note.smallest_effect, note.seeds_needed) == (None, None, None)
    assert not note.resolvable
