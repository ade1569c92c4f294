from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from a3r.leader.goal import GoalSpec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.plan import Conclusion, StagePlan
from a3r.leader.sweep import SweepPlanner
from a3r.leader.sweep_steps import coarse_levels, refine_levels
from a3r.report.records import Records
from a3r.testing.records import SyntheticCell, SyntheticStage, synthetic_records

Gain = Callable[[str, float, object], float]
"""(stage kind, level, condition) -> true gain."""


class World:
    """Plays the planner against a known truth until it concludes."""

    def __init__(self, goal: GoalSpec, gain: Gain, outcomes: dict | None = None, spread=0.01):
        self.goal, self.gain, self.outcomes, self.spread = goal, gain, outcomes or {}, spread
        self.plans: list[StagePlan] = []
        self.planner = SweepPlanner()

    def records(self) -> Records:
        stages = tuple(self.stage(plan) for plan in self.plans)
        spec = self.goal.model_dump(mode="json")
        return synthetic_records(stages, spec, steps=1, spread=self.spread)

    def stage(self, plan: StagePlan) -> SyntheticStage:
        cells = []
        for row in plan.design:
            level = row.factors["train_batch_size"]
            condition = row.factors.get("max_response_tokens")
            fate = self.outcomes.get((plan.kind, level, condition))
            cells.append(
                SyntheticCell(
                    condition,
                    level,
                    self.gain(plan.kind, level, condition),
                    row.seeds,
                    dict.fromkeys(row.seeds, fate) if fate else {},
                )
            )
        return SyntheticStage(plan.kind, tuple(cells))

    def run(self) -> Conclusion:
        for _ in range(20):
            outcome = self.planner.next(self.goal, self.records())
            if isinstance(outcome, Conclusion):
                return outcome
            self.plans.append(outcome)
        raise AssertionError("the planner does not end")

    @property
    def kinds(self) -> list[str]:
        return [plan.kind for plan in self.plans]

    def cells(self, index: int) -> list[tuple]:
        return [tuple(row.factors.values()) for row in self.plans[index].design]


@pytest.fixture
def goal(goal_text) -> GoalSpec:
    return parse_goal(goal_text, Path("goal.md"))


@pytest.fixture
def one_condition(goal_text) -> GoalSpec:
    text = goal_text.replace(", across: max_response_tokens", "").replace(
        "  max_response_tokens: {levels: [10, 16]}\n", ""
    )
    return parse_goal(text, Path("goal.md"))


def steps(threshold: float, high: float = 0.3) -> Gain:
    return lambda _kind, level, _condition: high if level >= threshold else 0.0


def test_the_coarse_stage_takes_the_ends_and_every_third_level_between():
    assert coarse_levels([1, 2, 4, 8, 16, 32, 64]) == (1, 8, 64)
    assert coarse_levels([1, 2]) == (1, 2)
    assert coarse_levels([1, 2, 4, 8, 16]) == (1, 8, 16)


def test_refining_takes_two_levels_at_once_and_halves_more():
    assert refine_levels([2, 4]) == (2, 4)
    assert refine_levels([2, 4, 8]) == (4,)
    assert refine_levels([2, 4, 8, 16]) == (4,)


def test_a_threshold_inside_the_grid_is_bracketed_refined_and_confirmed(goal):
    world = World(goal, steps(16))
    end = world.run()
    assert world.kinds == ["coarse", "refine", "replicate"]
    assert world.cells(0) == [(b, c) for c in (10, 16) for b in (1, 8, 64)]
    assert world.cells(1) == [(b, c) for c in (10, 16) for b in (16, 32)]
    assert sorted(world.cells(2)) == [(8, 10), (8, 16), (16, 10), (16, 16)]
    assert end.reason == "answered"
    assert [(v.status, v.level) for v in end.verdicts] == [("confirmed", 16)] * 2
    assert "not shown" in end.text


def test_conditions_are_refined_and_confirmed_each_at_their_own_place(goal):
    world = World(goal, lambda _k, level, cap: 0.3 if level >= (32 if cap == 10 else 4) else -0.2)
    end = world.run()
    assert [(v.condition, v.level) for v in end.verdicts] == [(10, 32), (16, 4)]
    assert (16, 10) in world.cells(2)
    assert (2, 16) in world.cells(2)
    assert end.complete


def test_replication_uses_seeds_that_no_earlier_run_of_the_cell_had(goal):
    world = World(goal, steps(16))
    world.run()
    screened = {seed for plan in world.plans[:2] for row in plan.design for seed in row.seeds}
    fresh = {seed for row in world.plans[2].design for seed in row.seeds}
    assert screened == {1, 2}
    assert fresh == {3, 4, 5, 6}


def test_a_claim_that_fresh_seeds_do_not_confirm_moves_up(goal):
    lucky = lambda kind, level, _c: 0.3 if level >= (32 if kind == "replicate" else 16) else 0.0  # noqa: E731
    world = World(goal, lucky)
    end = world.run()
    assert world.kinds == ["coarse", "refine", "replicate", "replicate"]
    assert world.cells(3) == [(32, 10), (32, 16)]
    assert [(v.status, v.level) for v in end.verdicts] == [("confirmed", 32)] * 2


def test_a_claim_moves_down_when_the_level_below_trains_on_fresh_seeds(goal):
    unlucky = lambda kind, level, _c: 0.3 if level >= (8 if kind == "replicate" else 16) else 0.0  # noqa: E731
    world = World(goal, unlucky)
    end = world.run()
    assert world.kinds[-1] in {"replicate", "refine"}
    assert len(world.plans) > 3
    assert [(v.status, v.level) for v in end.verdicts] == [("confirmed", 8)] * 2


def test_a_minimum_at_the_lowest_level_is_censored(goal):
    world = World(goal, steps(0))
    end = world.run()
    assert world.kinds == ["coarse", "replicate"] or world.kinds == [
        "coarse",
        "refine",
        "replicate",
    ]
    assert {v.status for v in end.verdicts} == {"censored_low"}
    assert "at or below 1" in end.text
    assert (1, 10) in world.cells(-1)


def test_a_grid_on_which_nothing_trains_is_said_so_after_fresh_seeds_at_the_top(goal):
    world = World(goal, steps(1000))
    end = world.run()
    assert world.kinds == ["coarse", "replicate"]
    assert world.cells(1) == [(64, 10), (64, 16)]
    assert {v.status for v in end.verdicts} == {"censored_high"}
    assert "no level of the grid is shown to train" in end.text


def test_a_question_without_conditions_is_served_too(one_condition):
    world = World(one_condition, steps(4))
    end = world.run()
    assert [(v.condition, v.status, v.level) for v in end.verdicts] == [(None, "confirmed", 4)]
    assert end.text.startswith("Every condition is settled. The minimum is 4")


def test_the_same_records_give_the_same_plan(goal):
    world = World(goal, steps(16))
    world.run()
    again = World(goal, steps(16))
    again.run()
    assert [p.model_dump_json() for p in world.plans] == [p.model_dump_json() for p in again.plans]


def test_the_budget_of_stages_ends_it_unresolved(goal):
    short = goal.model_copy(update={"budget": goal.budget.model_copy(update={"max_stages": 2})})
    world = World(short, steps(16))
    end = world.run()
    assert (end.reason, end.complete) == ("max_stages", False)
    assert {v.status for v in end.verdicts} == {"unresolved"}
    assert "number of stages is used up" in end.text


def test_a_stage_that_does_not_fit_into_the_budget_of_runs_is_not_planned(goal):
    short = goal.model_copy(update={"budget": goal.budget.model_copy(update={"max_runs": 21})})
    world = World(short, steps(16))
    end = world.run()
    assert world.kinds == ["coarse", "refine"]
    assert end.reason == "max_runs"


def test_a_cell_that_failed_is_not_asked_for_again(goal):
    failed = {("replicate", 8, 10): "failed", ("refine", 32, 10): "failed"}
    world = World(goal, steps(16), failed)
    end = world.run()
    assert world.kinds == ["coarse", "refine", "replicate"]
    assert end.reason == "exhausted"
    assert [v.status for v in end.verdicts] == ["unresolved", "confirmed"]


def test_no_result_at_all_is_no_answer(goal):
    failed = {("coarse", b, c): "failed" for b in (1, 8, 64) for c in (10, 16)}
    end = World(goal, steps(16), failed).run()
    assert end.reason == "no_data"
    assert "No run has a result" in end.text


def test_a_plan_says_beforehand_what_each_outcome_leads_to_and_what_it_can_show(goal):
    world = World(goal, steps(16), spread=0.05)
    world.run()
    replicate = world.plans[2]
    assert replicate.attainable.family == 8  # both directions of four cells
    assert replicate.attainable.n == 4
    assert replicate.attainable.smallest_gain == pytest.approx(
        replicate.attainable.sd * 6.2315 / 2, rel=1e-3
    )  # t quantile of 1 - 0.05 * 2/3 / 8 with 3 degrees of freedom, over the root of 4
    assert len(replicate.decision_table) == 4
    assert replicate.min_effect == 0.05
    assert all(p.predictions and p.stop_rule for p in world.plans)
    assert replicate.evidence["cells"]
