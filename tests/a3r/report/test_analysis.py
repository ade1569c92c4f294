"""What the minimum question may conclude, case by case."""

import pytest

from a3r.core.errors import GoalError
from a3r.report.analysis import minimum
from a3r.report.family import share
from a3r.report.question import levels_of, question_of
from a3r.report.records import Records
from a3r.report.render import claims_of
from a3r.report.results import ConditionAnalysis, Shift, Status, Verdict
from a3r.stats.intervals import mean_interval
from a3r.stats.tests import holm, t_test_greater, t_test_less
from a3r.testing.edits import one_condition
from a3r.testing.records import (
    SyntheticCell,
    SyntheticStage,
    synthetic_goal,
    synthetic_records,
)

FRESH = (3, 4, 5, 6)
LADDER = {1: 0.0, 2: 0.0, 4: 0.3, 8: 0.3}


def only(records: Records) -> ConditionAnalysis:
    return minimum(records).conditions[0]


def test_confirmed_minimum_trains_on_fresh_seeds_and_the_level_below_does_not():
    found = only(one_condition(LADDER, {2: FRESH, 4: FRESH}))
    assert (found.status, found.claimed, found.below) == (Status.CONFIRMED, 4, 2)
    assert found.below_verdict in (Verdict.SHOWN_NOT, Verdict.NOT_SHOWN)
    assert found.monotone


def test_cell_numbers_equal_those_computed_from_its_fresh_gains():
    records = one_condition(LADDER, {2: FRESH, 4: FRESH})
    analysis = minimum(records)
    fresh = {
        level: [g.gain for g in analysis.conditions[0].cell(level).gains if g.fresh]  # pyright: ignore[reportOptionalMemberAccess]
        for level in (2, 4)
    }
    cell = analysis.conditions[0].cell(4)
    assert cell is not None
    assert cell.fresh is not None
    expected = mean_interval(fresh[4])
    assert (cell.fresh.low, cell.fresh.n) == (expected.low, 4)
    above = [t_test_greater(fresh[x], 0.05) or 0.0 for x in (2, 4)]
    below = [t_test_less(fresh[x], 0.05) or 0.0 for x in (2, 4)]
    assert cell.p_adjusted == pytest.approx(holm([*above, *below])[1] / share(1))
    assert cell.p_not_adjusted == min(1, holm([*above, *below])[3] / share(1))
    assert analysis.family == 4
    assert len(cell.gains) == 6
    assert cell.fresh_planned == 4


def test_exploratory_seeds_alone_never_confirm():
    found = only(one_condition(LADDER, {}))
    assert (found.status, found.claimed) == (Status.UNRESOLVED, 4)
    assert "not replicated" in found.reason


def test_level_below_must_be_replicated_too():
    found = only(one_condition(LADDER, {4: FRESH}))
    assert found.status is Status.UNRESOLVED
    assert "level 2 below it was not replicated" in found.reason


def test_gap_of_the_grid_below_the_minimum_leaves_it_open():
    found = only(one_condition({1: 0.0, 4: 0.3, 8: 0.3}, {1: FRESH, 4: FRESH}))
    assert (found.status, found.untested_between) == (Status.UNRESOLVED, (2,))


def test_minimum_at_the_lowest_level_is_censored_low():
    found = only(one_condition(dict.fromkeys(LADDER, 0.3), {1: FRESH}))
    assert (found.status, found.claimed, found.below) == (Status.CENSORED_LOW, 1, None)


def test_grid_on_which_nothing_trains_is_censored_high():
    found = only(one_condition(dict.fromkeys(LADDER, 0.0), {8: FRESH}))
    assert (found.status, found.claimed) == (Status.CENSORED_HIGH, None)


def test_highest_level_that_leans_yes_but_fails_on_fresh_seeds_is_not_confirmed():
    found = only(one_condition({4: 0.0, 8: 0.2}, {8: FRESH}, (4, 8), spread=0.2))
    top = found.cells[-1]
    assert (top.lean, top.verdict) == (True, Verdict.NOT_SHOWN)
    assert found.status is Status.NOT_CONFIRMED
    assert "fresh seeds do not confirm it" in found.reason


def test_claim_moves_up_when_fresh_seeds_do_not_confirm_it():
    records = synthetic_records(
        [
            SyntheticStage(
                "coarse",
                tuple(SyntheticCell(None, x, g, (1, 2)) for x, g in {2: 0.3, 4: 0.3}.items()),
            ),
            SyntheticStage("replicate", (SyntheticCell(None, 2, 0.0, FRESH),)),
        ],
        synthetic_goal((2, 4), (None,)),
    )
    found = only(records)
    assert (found.claimed, found.below, found.status) == (4, 2, Status.UNRESOLVED)


def test_claim_moves_down_when_the_level_below_trains_after_all():
    gains = {1: 0.0, 2: 0.3, 4: 0.3}
    found = only(one_condition(gains, {2: FRESH, 4: FRESH}, (1, 2, 4)))
    assert (found.claimed, found.below) == (2, 1)
    assert found.status is Status.UNRESOLVED  # level 1 still needs fresh seeds


def test_yes_below_a_no_is_told_as_not_monotone():
    found = only(one_condition({1: 0.0, 2: 0.3, 4: 0.0, 8: 0.3}, {}))
    assert (found.claimed, found.monotone) == (8, False)


def test_failed_fresh_runs_count_in_the_family_and_leave_the_cell_unreplicated():
    outcomes = dict.fromkeys(FRESH[1:], "failed")
    records = synthetic_records(
        [
            SyntheticStage(
                "replicate",
                (
                    SyntheticCell(None, 4, 0.3, FRESH, outcomes),
                    SyntheticCell(None, 8, 0.3, FRESH),
                ),
            )
        ],
        synthetic_goal((4, 8), (None,)),
    )
    analysis = minimum(records)
    low, high = analysis.conditions[0].cells
    assert (low.verdict, low.p_adjusted, low.fresh_planned) == (Verdict.NOT_REPLICATED, None, 4)
    assert analysis.family == 4
    assert high.p is not None
    assert high.p_adjusted == pytest.approx(4 * high.p / share(1))


def shifted(below: float, spread: float = 0.02) -> Records:
    """Level 2 trains at cap 16; at cap 10 its true gain is ``below``."""
    cells = (
        SyntheticCell(10, 2, below, FRESH),
        SyntheticCell(16, 2, 0.3, FRESH),
        SyntheticCell(10, 4, 0.3, FRESH),
        SyntheticCell(16, 1, 0.0, FRESH),
    )
    return synthetic_records(
        [SyntheticStage("replicate", cells)], synthetic_goal((1, 2, 4)), spread=spread
    )


def test_shift_is_shown_when_a_level_trains_here_and_is_shown_not_to_train_there():
    found = minimum(shifted(-0.05)).shift
    assert (found.status, found.level, found.trains_in, found.not_in) == (Shift.SHOWN, 2, 16, 10)


def test_shift_is_not_shown_by_a_level_that_merely_failed_to_be_confirmed():
    analysis = minimum(shifted(0.045, spread=0.03))
    assert analysis.shift.status is Shift.NOT_SHOWN
    assert analysis.condition(10).claimed != analysis.condition(16).claimed
    assert [d.level for d in analysis.shift.differences] == [2]


def test_shift_without_conditions_was_not_asked():
    assert minimum(one_condition(LADDER, {})).shift.status is Shift.NOT_ASKED


def test_campaign_without_any_run_is_unresolved_in_every_condition():
    analysis = minimum(synthetic_records([]))
    assert [c.status for c in analysis.conditions] == [Status.UNRESOLVED] * 2
    assert analysis.family == 0


def test_goal_without_criterion_names_what_is_missing():
    spec = synthetic_goal()
    del spec["criterion"]
    with pytest.raises(GoalError, match="criterion"):
        question_of(spec)


def test_range_of_levels_is_expanded_in_doublings():
    assert levels_of({"range": [1, 64], "scale": "log2"}) == [1, 2, 4, 8, 16, 32, 64]
    assert levels_of({"range": [1, 3], "scale": "linear"}) == [1, 2, 3]


def test_a_level_that_trains_below_one_that_does_not_leaves_the_minimum_open():
    # Level 4 is the claim's lower neighbour and fails; level 2 below it is shown to train.
    gains = {1: 0.0, 2: 0.3, 4: -0.1, 8: 0.3}
    records = one_condition(gains, {2: FRESH, 4: FRESH, 8: FRESH})
    found = only(records)
    assert (found.claimed, found.below, found.status) == (8, 4, Status.UNRESOLVED)
    assert (
        found.reason == "level 8 trains, level 4 below it is shown not to train, but level 2 trains"
    )
    text = claims_of(records)[0].text
    assert "smallest train_batch_size shown to train is 8" not in text
    assert "the smallest level from which every tested one says yes is 8" in text


def test_a_grid_whose_highest_level_fails_is_not_censored_when_a_lower_one_trains():
    records = one_condition({4: 0.3, 8: 0.0}, {4: FRESH, 8: FRESH}, (4, 8))
    found = only(records)
    assert (found.claimed, found.status) == (None, Status.UNRESOLVED)
    assert "level 4 trains" in found.reason
    assert "is shown to train" not in claims_of(records)[0].text
