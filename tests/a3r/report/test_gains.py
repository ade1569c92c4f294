"""The gain of a run, and every reason why a run has none."""

import math

import pytest
from pydantic import ValidationError

from a3r.report.gains import RunGain, run_gains
from a3r.report.question import question_of
from a3r.report.records import ItemRecord, Records
from a3r.testing.edits import one_condition, with_item, with_run
from a3r.testing.records import (
    SyntheticCell,
    SyntheticStage,
    synthetic_goal,
    synthetic_records,
)


def gains(records: Records) -> list[RunGain]:
    return run_gains(records, question_of(records.campaign.goal_spec))


@pytest.fixture
def small() -> Records:
    return one_condition({1: 0.0, 2: 0.3}, {2: (3, 4)}, (1, 2), spread=0.0)


def test_gain_is_the_mean_of_the_final_round_minus_that_of_the_initial_one(small: Records):
    # 40 items: 12 right before; 24 right after (0.3 + 0.3)
    found = next(g for g in gains(small) if g.level == 2)
    assert (found.initial, found.final) == (12 / 40, 24 / 40)
    assert found.gain == pytest.approx(0.3)


def test_gain_of_a_minimised_metric_turns_the_sign(small: Records):
    small.campaign.goal_spec["metric"]["direction"] = "minimize"
    assert next(g for g in gains(small) if g.level == 2).gain == pytest.approx(-0.3)


def test_missing_item_excludes_the_run_and_is_not_a_zero(small: Records):
    spoiled = with_item(small, 1, 5, reward=None)
    found = gains(spoiled)[0]
    assert found.gain is None
    assert found.missing == 1
    assert found.excluded == "the final round misses 1 of 40 items"
    assert found.state == "succeeded"


def test_missing_item_within_the_allowed_share_is_left_out_of_the_mean(small: Records):
    small.campaign.goal_spec["metric"]["missing_allowed"] = 0.05
    found = gains(with_item(small, 1, 39, reward=None))[0]
    assert found.final == pytest.approx(12 / 39)  # a zero in its place would give 12 / 40
    assert found.missing == 1


def test_item_played_by_another_version_counts_as_missing(small: Records):
    found = gains(with_item(small, 1, 0, policy_version=3))[0]
    assert "misses 1 of 40" in found.excluded


def test_not_finite_reward_does_not_even_become_a_record():
    with pytest.raises(ValidationError, match="finite"):
        ItemRecord(item_id="a", reward=math.nan, policy_version=0, calls=1, truncated_calls=0)


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        ({"seed": 77}, "planned seed 1, but the run's own record says 77"),
        ({}, "the run's own record does not state its seed"),
        ({"seed": "1"}, "planned seed 1, but the run's own record says '1'"),
    ],
)
def test_run_whose_own_record_does_not_prove_the_seed_is_excluded(
    small: Records, summary: dict, reason: str
):
    attempt = small.runs[0].attempts[0].model_copy(update={"summary": summary})
    assert gains(with_run(small, 0, attempts=(attempt,)))[0].excluded == reason


def test_run_with_a_missing_step_record_is_excluded(small: Records):
    torn = small.model_copy(update={"steps": small.steps[1:]})
    assert gains(torn)[0].excluded == "4 of 5 step records"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policy_version": 1}, "the initial round was played at version 1, not 0"),
        ({"item_set_hash": "other"}, "used other items"),
        ({"evaluator_hash": "other"}, "another scorer"),
        ({"fingerprint": "other"}, "started from other weights"),
        ({"planned": 41}, "misses 1 of 41"),
        ({"name": "step-0"}, "no initial evaluation round"),
    ],
)
def test_round_that_is_not_the_planned_one_is_excluded(small: Records, changes: dict, reason: str):
    evals = (small.evals[0].model_copy(update=changes), *small.evals[1:])
    assert reason in gains(small.model_copy(update={"evals": evals}))[0].excluded


def test_item_that_is_reported_twice_excludes_the_run(small: Records):
    twice = with_item(small, 0, 1, item_id=small.evals[0].items[0].item_id)
    assert "counts an item twice" in gains(twice)[0].excluded


def test_cell_that_was_redefined_is_not_pooled_with_its_older_runs(small: Records):
    newest = small.blueprints[-1].model_copy(update={"cell_hash": "new"})
    changed = small.model_copy(update={"blueprints": (*small.blueprints[:-1], newest)})
    found = [g for g in gains(changed) if g.level == 2]
    assert [bool(g.excluded) for g in found] == [True, True, False, False]
    assert "older definition" in found[0].excluded


def test_seed_that_an_earlier_stage_used_is_not_fresh_and_counts_once():
    again = synthetic_records(
        [
            SyntheticStage("coarse", (SyntheticCell(None, 2, 0.3, (1, 2)),)),
            SyntheticStage("replicate", (SyntheticCell(None, 2, 0.3, (2, 3)),)),
        ],
        synthetic_goal((1, 2), (None,)),
    )
    assert [(g.seed, g.fresh, g.excluded) for g in gains(again)] == [
        (1, False, ""),
        (2, False, ""),
        (2, False, "this seed already has a result in this cell"),
        (3, True, ""),
    ]


def test_planned_runs_without_a_row_are_counted_as_not_run(small: Records):
    cut = small.model_copy(update={"runs": small.runs[:-1]})
    found = gains(cut)
    assert len(found) == 6
    assert (found[-1].state, found[-1].gain) == ("not run", None)
    assert found[-1].excluded == "not run (review: pending)"


def test_outcomes_add_up_to_the_plan_and_keep_their_reasons():
    outcomes = {2: "failed", 3: "cancelled", 4: "pending"}
    mixed = synthetic_records(
        [SyntheticStage("coarse", (SyntheticCell(None, 2, 0.3, (1, 2, 3, 4), outcomes),))],
        synthetic_goal((1, 2), (None,)),
    )
    assert [g.state for g in gains(mixed)] == ["succeeded", "failed", "cancelled", "not run"]
    assert [g.excluded for g in gains(mixed)] == [
        "",
        "failed: synthetic: failed",
        "cancelled: synthetic: cancelled",
        "not run",
    ]
