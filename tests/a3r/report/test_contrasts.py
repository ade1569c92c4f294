"""Best level, comparison and interaction: what fresh seeds must show, and what is never said without them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3r.core.errors import GoalError
from a3r.report.analysis import minimum
from a3r.report.cells import bounds
from a3r.report.contrast_analysis import analyse_contrasts
from a3r.report.contrast_claims import contrast_claims
from a3r.report.contrast_results import ContrastAnalysis, Shown
from a3r.report.family import share
from a3r.report.question import Question, question_of
from a3r.report.results import Cell, SeedGain, Status, Verdict
from a3r.stats.paired import paired_difference
from a3r.stats.tests import holm
from a3r.testing.records import synthetic_goal, synthetic_records

NOISE = (0.01, -0.01, 0.004, -0.006, 0.002)


def question(
    kind: str, levels: list[Any], across: list[Any] | None = None, **more: Any
) -> Question:
    asked = {
        "kind": kind,
        "factor": "f",
        "across": "g" if across else None,
        **more.pop("asked", {}),
    }
    factors: dict[str, Any] = {"f": {"levels": levels}}
    if across:
        factors["g"] = {"levels": across}
    spec = {
        "question": asked,
        "factors": factors,
        "metric": {"items": 40, "measure": more.pop("measure", "gain")},
        "criterion": {"min_gain": 0.05, "confidence": 0.95},
        **more,
    }
    return question_of(spec)


def cell(level: Any, look: float, fresh: dict[int, float] | None = None, at: Any = None) -> Cell:
    """A first look of two equal seeds at ``look``, and gains by fresh seed."""
    looks = [SeedGain(run_id=f"{at}/{level}/{s}", seed=s, gain=look, fresh=False) for s in (1, 2)]
    more = [
        SeedGain(run_id=f"{at}/{level}/{s}", seed=s, gain=g, fresh=True, stage=s // 10)
        for s, g in (fresh or {}).items()
    ]
    gains = (*looks, *more)
    return Cell(
        condition=at,
        level=level,
        planned=len(gains),
        gains=gains,
        all_seeds=bounds([g.gain for g in gains], 0.95),
        lean=None,
        fresh_planned=len(more),
        contests=dict(sorted(Counter(g.stage for g in more).items())),
        fresh=bounds([g.gain for g in more], 0.95),
        p=None,
        p_adjusted=None,
        p_not=None,
        p_not_adjusted=None,
        verdict=Verdict.MEASURED,
    )


def around(mean: float, turn: int = 0, first: int = 11) -> dict[int, float]:
    """Five fresh seeds around a mean; ``turn`` orders the noise, so that two cells do not share it."""
    noise = NOISE[turn:] + NOISE[:turn]
    return {first + i: mean + x for i, x in enumerate(noise)}


def texts(found: ContrastAnalysis, asked: Question, kind: str) -> list[str]:
    return [c.text for c in contrast_claims(found, asked) if c.kind == kind]


# --- best ------------------------------------------------------------------------------------------------------


def test_the_best_level_is_shown_above_every_rival_on_fresh_seeds():
    asked = question("best", ["a", "b", "c"])
    cells = [
        cell("a", 0.1, around(0.1)),
        cell("b", 0.5, around(0.5, 1)),
        cell("c", 0.2, around(0.2, 2)),
    ]
    found = analyse_contrasts(cells, asked).condition(None)
    assert (found.status, found.leader) == (Status.CONFIRMED, "b")
    assert {(c.level, c.against, c.verdict) for c in found.contrasts[:2]} == {
        ("b", "a", Shown.HIGHER),
        ("b", "c", Shown.HIGHER),
    }
    assert found.reason == "level b is shown above levels a and c"


def test_a_first_look_alone_names_no_best_level():
    found = analyse_contrasts([cell("a", 0.1), cell("b", 0.9)], question("best", ["a", "b"]))
    assert (found.status, found.condition(None).leader) == (Status.UNRESOLVED, "b")
    assert "no fresh seeds were put to it" in found.reason
    assert found.family == 0


def test_a_lone_level_has_nothing_to_be_better_than():
    found = analyse_contrasts([cell("a", 0.1, around(0.1))], question("best", ["a", "b"]))
    assert found.status is Status.UNRESOLVED
    assert "nothing to compare it with" in found.reason


def test_no_run_at_all_is_no_answer():
    found = analyse_contrasts([], question("best", ["a", "b"]))
    assert (found.status, found.reason) == (Status.UNRESOLVED, "no run has a result")
    assert found.condition(None).untested == ("a", "b")


def test_levels_that_seeds_can_not_tell_apart_have_no_best_among_them():
    noisy = {11: 0.5, 12: 0.1, 13: 0.4, 14: 0.2, 15: 0.3}
    other = {11: 0.1, 12: 0.4, 13: 0.2, 14: 0.5, 15: 0.29}
    asked = question("best", ["a", "b"], smallest_effect=0.05)
    found = analyse_contrasts([cell("a", 0.3, noisy), cell("b", 0.3, other)], asked)
    assert found.status is Status.NOT_CONFIRMED
    (claim,) = texts(found, asked, "best")
    assert claim.startswith("No best f is shown: level a is not shown above level b")


def test_levels_shown_to_be_equivalent_are_tied_and_both_named():
    asked = question("best", ["a", "b"], smallest_effect=0.2)
    found = analyse_contrasts(
        [cell("a", 0.3, around(0.3)), cell("b", 0.3, around(0.301, 2))], asked
    )
    assert found.status is Status.TIED
    (claim,) = texts(found, asked, "best")
    assert "no f is best by more than that" in claim


def test_a_difference_that_does_not_matter_keeps_its_direction_and_is_called_small():
    asked = question("best", ["a", "b"], smallest_effect=0.2)
    steady = {s: 0.3 + 0.05 * s for s in range(11, 16)}
    below = {s: g - 0.05 - 0.001 * (s % 2) for s, g in steady.items()}
    found = analyse_contrasts([cell("a", 0.3, steady), cell("b", 0.3, below)], asked)
    pair = found.condition(None).contrasts[0]
    assert (pair.verdict, pair.negligible) == (Shown.HIGHER, True)
    assert found.status is Status.CONFIRMED
    assert "by less than what matters (within 0.2)" in texts(found, asked, "difference")[0]


def test_without_a_smallest_effect_nothing_is_called_equivalent():
    asked = question("best", ["a", "b"])
    found = analyse_contrasts([cell("a", 0.3, around(0.3)), cell("b", 0.3, around(0.3, 2))], asked)
    pair = found.condition(None).contrasts[0]
    assert (pair.p_equivalent, pair.verdict) == (None, Shown.NOT_SHOWN)
    assert found.family == 2


def test_a_level_that_looked_better_than_the_leader_on_fresh_seeds_keeps_it_open():
    asked = question("best", ["a", "b", "c"])
    cells = [cell("a", 0.6, around(0.3)), cell("b", 0.5, around(0.1, 1)), cell("c", 0.4)]
    found = analyse_contrasts(cells, asked).condition(None)
    assert (found.leader, found.challengers, found.status) == ("a", ("c",), Status.UNRESOLVED)
    assert "looked better in the first look (+0.400) than level a" in found.reason


def test_levels_put_aside_and_an_edge_of_the_grid_are_named_with_the_answer():
    asked = question("best", [1, 2, 4, 8])
    cells = [cell(2, 0.0), cell(4, 0.3, around(0.3)), cell(8, 0.5, around(0.5, 1))]
    found = analyse_contrasts(cells, asked)
    (claim,) = texts(found, asked, "best")
    assert "2 fell behind in the first look and got no fresh seeds" in claim
    assert "1 has no result" in claim
    assert "it is the highest level of the grid, so a better one may lie beyond" in claim


def test_seeds_of_one_level_only_are_left_out_and_told():
    ours, theirs = around(0.5), around(0.1, 1)
    del theirs[13]
    asked = question("best", ["a", "b"])
    found = analyse_contrasts([cell("a", 0.5, ours), cell("b", 0.1, theirs)], asked)
    pair = found.condition(None).contrasts[0]
    assert (pair.seeds, pair.alone) == ((11, 12, 14, 15), (13,))
    (claim,) = texts(found, asked, "difference")
    assert "n = 4 seeds in pairs" in claim
    assert "seed 13 has no result in one of them and is left out" in claim


def test_levels_that_no_stage_repeated_together_are_not_compared():
    asked = question("best", ["a", "b"])
    cells = [cell("a", 0.5, around(0.5)), cell("b", 0.1, around(0.1, 1, first=51))]
    found = analyse_contrasts(cells, asked)
    assert found.condition(None).contrasts[0].verdict is Shown.NOT_REPLICATED
    assert (found.status, found.family) == (Status.UNRESOLVED, 0)
    assert "share fewer than two fresh seeds" in found.reason


def test_a_pair_is_judged_by_the_first_stage_that_repeated_it_and_never_again():
    asked = question("best", ["a", "b"])
    close, clear = around(0.3) | around(0.9, first=21), around(0.3, 1) | around(0.1, first=21)
    found = analyse_contrasts([cell("a", 0.5, close), cell("b", 0.3, clear)], asked)
    pair = found.condition(None).contrasts[0]
    assert (pair.contest, pair.seeds, pair.verdict) == (1, (11, 12, 13, 14, 15), Shown.NOT_SHOWN)


def test_a_stage_whose_runs_failed_leaves_the_pair_to_the_next_one():
    asked = question("best", ["a", "b"])
    ours, theirs = around(0.5) | around(0.5, first=21), {11: 0.1} | around(0.1, 1, first=21)
    found = analyse_contrasts([cell("a", 0.5, ours), cell("b", 0.1, theirs)], asked)
    pair = found.condition(None).contrasts[0]
    assert (pair.contest, pair.verdict) == (2, Shown.HIGHER)


def test_equal_differences_in_all_seeds_prove_nothing():
    asked = question("best", ["a", "b"])
    found = analyse_contrasts(
        [
            cell("a", 0.5, dict.fromkeys(range(11, 16), 0.5)),
            cell("b", 0.1, dict.fromkeys(range(11, 16), 0.25)),
        ],
        asked,
    )
    assert found.condition(None).contrasts[0].verdict is Shown.NOT_SHOWN


# --- comparison ------------------------------------------------------------------------------------------------


def test_every_level_is_held_against_the_named_baseline():
    asked = question("comparison", ["a", "b", "c"], asked={"baseline": "b"}, smallest_effect=0.1)
    cells = [
        cell("a", 0.5, around(0.5)),
        cell("b", 0.2, around(0.2, 1)),
        cell("c", 0.2, around(0.2, 2)),
    ]
    found = analyse_contrasts(cells, asked)
    pairs = [(c.level, c.against, c.verdict) for c in found.condition(None).contrasts]
    assert pairs == [("a", "b", Shown.HIGHER), ("c", "b", Shown.EQUIVALENT)]
    assert found.status is Status.CONFIRMED
    first, second = texts(found, asked, "comparison")
    assert first.startswith(
        "Of f, a is shown above b: the gain in held-out reward at a minus that at b is +0.3"
    )
    assert second.startswith("Of f, c and b are equivalent (within 0.1)")


def test_a_level_below_the_baseline_is_said_to_be_below():
    asked = question("comparison", ["a", "b"])
    found = analyse_contrasts([cell("a", 0.5, around(0.5)), cell("b", 0.1, around(0.1, 1))], asked)
    assert found.condition(None).contrasts[0].verdict is Shown.LOWER
    assert "b is shown below a" in texts(found, asked, "comparison")[0]


def test_a_baseline_without_results_leaves_nothing_to_compare_with():
    asked = question("comparison", ["a", "b"])
    found = analyse_contrasts([cell("b", 0.1, around(0.1))], asked)
    assert found.reason == "the baseline a has no result"
    (claim,) = texts(found, asked, "comparison")
    assert "othing is compared with f a: the baseline" in claim


def test_one_family_spans_both_directions_equivalence_and_all_conditions():
    asked = question("comparison", ["a", "b"], ["x", "y"], smallest_effect=0.1)
    data = {
        ("a", "x"): around(0.3),
        ("b", "x"): around(0.4, 1),
        ("a", "y"): around(0.3, 2),
        ("b", "y"): around(0.31, 3),
    }
    cells = [cell(level, 0.3, fresh, at) for (level, at), fresh in data.items()]
    found = analyse_contrasts(cells, asked)
    assert found.family == 6
    raw: list[float] = []
    for at in ("x", "y"):
        pair = paired_difference(data["b", at], data["a", at])
        assert pair.p_greater is not None
        assert pair.p_less is not None
        equal = found.condition(at).contrasts[0].p_equivalent
        assert equal is not None
        raw += [pair.p_greater, pair.p_less, equal]
    adjusted = [min(1.0, p / share(1)) for p in holm(raw)]
    for i, at in enumerate(("x", "y")):
        c = found.condition(at).contrasts[0]
        found_ps = [c.p_higher_adjusted, c.p_lower_adjusted, c.p_equivalent_adjusted]
        assert found_ps == pytest.approx(adjusted[3 * i : 3 * i + 3])


def test_what_seeds_share_cancels_because_they_are_paired():
    seeds = {11: 0.0, 12: 0.4, 13: 0.8, 14: 0.2, 15: 0.6}
    better = {s: g + 0.05 + 0.002 * (s % 3) for s, g in seeds.items()}
    asked = question("comparison", ["a", "b"])
    found = analyse_contrasts([cell("a", 0.4, seeds), cell("b", 0.45, better)], asked)
    assert found.condition(None).contrasts[0].verdict is Shown.HIGHER


def test_final_values_are_told_as_such():
    asked = question("comparison", ["a", "b"], measure="final")
    found = analyse_contrasts([cell("a", 0.5, around(0.5)), cell("b", 0.7, around(0.7, 1))], asked)
    assert "the final held-out reward at b minus that at a" in texts(found, asked, "comparison")[0]
    assert "held-out reward ends at +0.5" in texts(found, asked, "cell")[0]


# --- interaction -----------------------------------------------------------------------------------------------


def crossed(effect: float, **more: Any) -> tuple[ContrastAnalysis, Question]:
    """``b`` adds 0.1 at ``x`` and ``effect`` at ``y``."""
    asked = question("interaction", ["a", "b"], ["x", "y"], **more)
    cells = [
        cell("a", 0.1, around(0.1), "x"),
        cell("b", 0.2, around(0.2, 1), "x"),
        cell("a", 0.1, around(0.1, 2), "y"),
        cell("b", 0.1 + effect, around(0.1 + effect, 3), "y"),
    ]
    return analyse_contrasts(cells, asked), asked


def test_an_effect_that_differs_between_conditions_is_an_interaction():
    found, asked = crossed(0.5)
    assert (found.status, found.family) == (Status.CONFIRMED, 2)
    assert found.interactions[0].difference is not None
    assert found.interactions[0].difference.mean == pytest.approx(0.4)
    (claim,) = texts(found, asked, "interaction")
    assert claim.startswith(
        "The effect of f b instead of a on the gain in held-out reward is shown to be higher at g y than at g x"
    )


def test_effects_that_are_shown_to_be_the_same_are_said_to_be():
    found, asked = crossed(0.1, smallest_effect=0.2)
    assert found.status is Status.TIED
    assert (
        "is shown to be the same, but for what does not matter, at"
        in texts(found, asked, "interaction")[0]
    )


def test_an_interaction_that_is_not_shown_is_not_called_absent():
    found, asked = crossed(0.1)
    assert found.status is Status.NOT_CONFIRMED
    assert (
        "is not shown to differ, nor to be the same, at g y and g x"
        in texts(found, asked, "interaction")[0]
    )


def test_effects_within_a_condition_are_described_and_stay_out_of_the_family():
    found, asked = crossed(0.5)
    assert [c.verdict for a in found.conditions for c in a.contrasts] == [Shown.MEASURED] * 2
    assert all("descriptive, not corrected" in t for t in texts(found, asked, "difference"))


def test_three_cells_make_no_interaction():
    asked = question("interaction", ["a", "b"], ["x", "y"])
    cells = [
        cell("a", 0.1, around(0.1), "x"),
        cell("b", 0.2, around(0.2), "x"),
        cell("a", 0.1, around(0.1), "y"),
    ]
    found = analyse_contrasts(cells, asked)
    assert (found.status, found.interactions) == (Status.UNRESOLVED, ())
    assert "is not resolved" in texts(found, asked, "interaction")[0]


# --- whatever the numbers --------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
def test_swapping_the_levels_swaps_the_verdict(first: list[float], second: list[float]):
    a, b = (dict(zip(range(11, 15), values, strict=True)) for values in (first, second))
    verdicts = []
    for one, two in ((a, b), (b, a)):
        asked = question("comparison", ["a", "b"], smallest_effect=0.1)
        found = analyse_contrasts([cell("a", 0.0, one), cell("b", 0.0, two)], asked)
        verdicts.append(found.condition(None).contrasts[0].verdict)
    turned = {Shown.HIGHER: Shown.LOWER, Shown.LOWER: Shown.HIGHER}
    assert verdicts[1] == turned.get(verdicts[0], verdicts[0])


def test_a_minimum_can_not_be_asked_of_another_question():
    spec = {
        **synthetic_goal((1, 2), (None,)),
        "question": {"kind": "best", "factor": "train_batch_size"},
    }
    with pytest.raises(GoalError, match="not for a minimum"):
        minimum(synthetic_records([], spec))
