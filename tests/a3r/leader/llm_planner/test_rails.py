from __future__ import annotations

import pytest

from a3r.leader.goal import GoalSpec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.llm_planner.proposal import StageProposal
from a3r.leader.llm_planner.rails import admit
from a3r.testing.records import SyntheticCell, SyntheticStage, synthetic_records

HEAD = """---
name: rails
question: QUESTION
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2, 4, 8]}
  max_response_tokens: {levels: [10, 16]}
metric: {name: held_out_reward, items: 40}
settings: {steps: 5}
seeds: {coarse: 2, refine: 2, replicate: 4, first: 1}
budget: {max_stages: 4, max_runs: 40}
planner: llm
---
Prose.
"""
MINIMUM = "{kind: minimum, factor: train_batch_size, across: max_response_tokens}"
BEST = "{kind: best, factor: train_batch_size, across: max_response_tokens}"
COMPARISON = (
    "{kind: comparison, factor: train_batch_size, across: max_response_tokens, baseline: 2}"
)


def cell(level, condition=10):
    return {"train_batch_size": level, "max_response_tokens": condition}


def stage(purpose="explore", cells=None, **more):
    cells = [cell(1), cell(8)] if cells is None else cells
    body = {
        "purpose": purpose,
        "cells": cells,
        "predictions": [{"cell": cells[0], "expects": "below_criterion"}] if cells else [],
        "decision_table": [
            {"when": "all_predictions_hold", "next": "explore_between"},
            {"when": "some_predictions_fail", "next": "explore_higher"},
        ],
    }
    return StageProposal.model_validate({**body, **more})


@pytest.fixture
def goal(tmp_path):
    def make(question=MINIMUM) -> GoalSpec:
        return parse_goal(HEAD.replace("QUESTION", question), tmp_path / "goal.md")

    return make


def records_of(goal: GoalSpec, *stages: SyntheticStage):
    return synthetic_records(stages, goal.model_dump(mode="json"))


def explored(*levels, condition=10):
    cells = tuple(SyntheticCell(condition, x, 0.3 if x >= 4 else 0.0, (1, 2)) for x in levels)
    return SyntheticStage("explore", cells)


def confirmed(*levels, condition=10):
    cells = tuple(SyntheticCell(condition, x, 0.3, (3, 4, 5, 6)) for x in levels)
    return SyntheticStage("replicate", cells)


def test_code_chooses_seeds_counts_runs_and_writes_every_sentence(goal):
    found = admit(goal(), records_of(goal()), stage())
    assert found.faults == []
    plan = found.plan
    assert (plan.kind, plan.runs) == ("explore", 4)
    assert {row.seeds for row in plan.design} == {(1, 2)}
    assert plan.attainable.family == 0
    assert plan.predictions[0].startswith("Predicted at train_batch_size 1, max_response_tokens 10")
    assert "0.05" in plan.predictions[0]
    assert plan.decision_table[0].next == "look at untested levels in between"
    assert "4 stages, 40 runs" in plan.stop_rule


def test_a_confirmation_gets_fresh_seeds_that_pair_and_says_what_it_can_show(goal):
    records = records_of(goal(), explored(1, 4, 8))
    plan = admit(goal(), records, stage("confirm", [cell(1), cell(4)])).plan
    assert plan.kind == "replicate"
    assert {row.seeds for row in plan.design} == {(3, 4, 5, 6)}
    assert plan.attainable.family == 4
    assert plan.attainable.note


def test_levels_are_taken_in_the_goals_own_form(goal):
    plan = admit(goal(), records_of(goal()), stage(cells=[cell(1.0), cell(8)])).plan
    assert plan.design[0].factors == {"train_batch_size": 1, "max_response_tokens": 10}
    assert type(plan.design[0].factors["train_batch_size"]) is int


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([cell(3)], "3 is no level"),
        ([cell(True)], "True is no level"),
        ([cell("1")], "'1' is no level"),
        ([{"train_batch_size": 1}], "does not set 'max_response_tokens'"),
        ([{**cell(1), "learning_rate": 0.1}], "'learning_rate' is no factor"),
        ([cell(1), cell(1.0)], "there twice"),
        ([cell(1)] * 65, "too many"),
    ],
)
def test_only_cells_of_the_goal_can_run(goal, cells, told):
    found = admit(goal(), records_of(goal()), stage(cells=cells))
    assert found.plan is None
    assert told in " ".join(found.faults)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"predictions": [{"cell": cell(2), "expects": "near_criterion"}]}, "no cell of this"),
        ({"predictions": [{"cell": cell(1), "expects": "same_as_other"}]}, "`other` belongs"),
        (
            {"predictions": [{"cell": cell(1), "expects": "higher_than_other", "other": cell(1)}]},
            "with itself",
        ),
        (
            {"predictions": [{"cell": cell(1), "expects": "higher_than_other", "other": cell(4)}]},
            "neither in this stage",
        ),
        (
            {
                "decision_table": [
                    {"when": "all_predictions_hold", "next": "conclude"},
                    {"when": "results_missing", "next": "conclude"},
                ]
            },
            "some or all fail",
        ),
        (
            {
                "decision_table": [
                    {"when": "all_predictions_hold", "next": "conclude"},
                    {"when": "no_prediction_holds", "next": "conclude"},
                    {"when": "cell_unclear", "next": "conclude"},
                ]
            },
            "pattern about a cell",
        ),
        ({"rationale": "Level 4 is best."}, "rationale"),
    ],
)
def test_predictions_table_and_words_keep_to_the_rules(goal, more, told):
    found = admit(goal(), records_of(goal()), stage(**more))
    assert found.plan is None
    assert told in " ".join(found.faults)


def test_nothing_is_confirmed_before_it_was_explored(goal):
    found = admit(goal(), records_of(goal(), explored(1)), stage("confirm", [cell(1), cell(4)]))
    assert "has no result yet" in " ".join(found.faults)
    assert admit(goal(), records_of(goal()), stage("confirm", [cell(1)])).plan is None


def test_nothing_is_explored_twice_nor_confirmed_twice(goal):
    once = records_of(goal(), explored(1, 4))
    assert "planned before" in " ".join(admit(goal(), once, stage(cells=[cell(1)])).faults)
    twice = records_of(goal(), explored(1, 4), confirmed(4))
    faults = admit(goal(), twice, stage("confirm", [cell(4)])).faults
    assert "until it fits" in " ".join(faults)


def test_rivals_meet_once_and_a_cell_alone_can_not_be_compared(goal):
    spec = goal(BEST)
    records = records_of(spec, explored(1, 4, 8), confirmed(4, 8))
    assert "met every other" in " ".join(
        admit(spec, records, stage("confirm", [cell(4), cell(8)])).faults
    )
    assert "nothing to be compared" in " ".join(
        admit(spec, records, stage("confirm", [cell(1)])).faults
    )
    plan = admit(spec, records, stage("confirm", [cell(1), cell(8)])).plan
    assert {row.seeds for row in plan.design} == {(7, 8, 9, 10)}


def test_a_comparison_needs_its_baseline_in_each_condition(goal):
    spec = goal(COMPARISON)
    records = records_of(spec, explored(1, 2, 4), explored(1, 2, 4, condition=16))
    cells = [cell(2), cell(4), cell(1, 16), cell(4, 16)]
    faults = admit(spec, records, stage("confirm", cells)).faults
    assert len(faults) == 2
    assert all("train_batch_size 2, max_response_tokens 16" in fault for fault in faults)
    assert admit(spec, records, stage("confirm", [*cells, cell(2, 16)])).faults == []


def test_a_level_that_met_the_baseline_does_not_meet_it_again_beside_a_new_one(goal):
    spec = goal(COMPARISON)
    records = records_of(spec, explored(1, 2, 4, 8), confirmed(2, 4))
    faults = admit(spec, records, stage("confirm", [cell(2), cell(4), cell(8)])).faults
    assert len(faults) == 1
    assert "train_batch_size 4" in faults[0]
    assert "until it fits" in faults[0]
    assert admit(spec, records, stage("confirm", [cell(2), cell(8)])).faults == []


def test_an_interaction_is_confirmed_with_all_four_cells_on_the_same_seeds(goal):
    spec = goal(COMPARISON.replace("comparison", "interaction"))
    records = records_of(spec, explored(2, 4), explored(2, 4, condition=16))
    one_condition = admit(spec, records, stage("confirm", [cell(2), cell(4)])).faults
    assert "four cells in one stage" in " ".join(one_condition)
    three = admit(spec, records, stage("confirm", [cell(4), cell(2, 16), cell(4, 16)])).faults
    assert "train_batch_size 2, max_response_tokens 10" in " ".join(three)
    four = [cell(2), cell(4), cell(2, 16), cell(4, 16)]
    plan = admit(spec, records, stage("confirm", four)).plan
    assert plan is not None
    assert len({row.seeds for row in plan.design}) == 1


def test_a_baseline_alone_confirms_nothing(goal):
    spec = goal(COMPARISON)
    records = records_of(spec, explored(1, 2, 4))
    faults = admit(spec, records, stage("confirm", [cell(2)])).faults
    assert "nothing to be compared with in this stage" in " ".join(faults)


def test_a_comparison_is_confirmed_together_with_its_baseline(goal):
    spec = goal(COMPARISON)
    records = records_of(spec, explored(1, 2, 4))
    assert "is compared with train_batch_size 2" in " ".join(
        admit(spec, records, stage("confirm", [cell(1), cell(4)])).faults
    )
    assert admit(spec, records, stage("confirm", [cell(2), cell(4)])).plan is not None


def test_the_budget_is_codes_to_keep(goal):
    tight = goal().model_copy(update={"budget": goal().budget.model_copy(update={"max_runs": 3})})
    found = admit(tight, records_of(tight), stage())
    assert "leaves 3" in " ".join(found.faults)
    used = goal().model_copy(update={"budget": goal().budget.model_copy(update={"max_stages": 1})})
    found = admit(used, records_of(used, explored(1)), stage(cells=[cell(4)]))
    assert "stages are used" in " ".join(found.faults)


def test_the_same_proposal_gives_the_same_plan(goal):
    records = records_of(goal(), explored(1, 4))
    proposal = stage("confirm", [cell(1), cell(4)], rationale="Chance may play a part here.")
    first, second = admit(goal(), records, proposal), admit(goal(), records, proposal)
    assert first == second
    assert 'own words: "Chance may play a part here."' in first.plan.why
