"""Goals beyond a minimum: kinds of questions, factors anywhere in a blueprint, paths, budgets, and what a check says of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from a3r.core.errors import GoalError
from a3r.leader.experiment import build_blueprints, client_bundle
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_check import GoalCheck, check_goal
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.goal_sections import Budget, Question
from a3r.leader.sweep import SweepPlanner
from a3r.leader.training import cell_settings
from a3r.report.question import question_of
from a3r.testing.trust.world import World

BASE = """---
name: a question
question: {question}
task: calculator
model: builtin:tiny-calc
factors:
{factors}
metric: {{name: held_out_reward, items: 40}}
settings: {{steps: 20}}
pilot: none
{more}
---
"""
WORDS = "  algorithm.name: {levels: [grpo, rloo]}"
SIZES = "  train_batch_size: {levels: [1, 2, 4, 8, 16, 32, 64]}"


def text(question: str, factors: str = WORDS, more: str = "") -> str:
    return BASE.format(question=f"{{{question}}}", factors=factors, more=more)


def goal(question: str, factors: str = WORDS, more: str = "", folder: Path = Path()) -> GoalSpec:
    return parse_goal(text(question, factors, more), folder / "goal.md")


def refused(question: str, factors: str = WORDS, more: str = "", folder: Path = Path()) -> str:
    with pytest.raises(GoalError) as caught:
        goal(question, factors, more, folder)
    return caught.value.message


def checked(folder: Path, question: str, factors: str = WORDS, more: str = "") -> GoalCheck:
    (folder / "goal.md").write_text(text(question, factors, more), encoding="utf-8")
    return check_goal(folder)


# --- questions -------------------------------------------------------------------------------------------------


def test_a_comparison_takes_the_first_level_as_baseline_unless_one_is_named():
    assert goal("kind: comparison, factor: algorithm.name").baseline == "grpo"
    named = goal("kind: comparison, factor: algorithm.name, baseline: rloo")
    assert named.baseline == question_of(named.model_dump(mode="json")).baseline == "rloo"


QUESTIONS = {
    "interaction of one factor": (
        "kind: interaction, factor: algorithm.name",
        WORDS,
        "an interaction needs two factors: add `across:",
    ),
    "minimum of words": ("kind: minimum, factor: algorithm.name", WORDS, "a minimum needs numbers"),
    "baseline of a best": (
        "kind: best, factor: algorithm.name, baseline: grpo",
        WORDS,
        "has no baseline",
    ),
    "unknown baseline": (
        "kind: comparison, factor: algorithm.name, baseline: ppo",
        WORDS,
        "the baseline 'ppo' is not among the levels",
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_makes_no_sense_is_refused_with_what_to_write(name):
    question, factors, wanted = QUESTIONS[name]
    assert wanted in refused(question, factors)


def test_a_minimum_is_measured_by_its_gain():
    final = text("kind: minimum, factor: train_batch_size", SIZES).replace(
        "items: 40", "items: 40, measure: final"
    )
    with pytest.raises(GoalError, match="it is measured by the gain"):
        parse_goal(final, Path("goal.md"))


# --- factors ---------------------------------------------------------------------------------------------------

FACTORS = {
    "words of a closed set": ("  algorithm.name: {levels: [grpo, ppo]}", "choose one of"),
    "unknown path": ("  algorithm.nam: {levels: [grpo, rloo]}", "did you mean 'algorithm.name'?"),
    "limit out of range": ("  limits.max_time_s: {levels: [-1, 60]}", "greater than 0"),
    "unknown limit": ("  limits.max_tim_s: {levels: [10, 60]}", "did you mean 'limits.max_time_s'?"),
    "reserved": ("  client.arguments.held_out_seed: {levels: [1, 2]}", "set by the campaign itself"),
    "argument that nobody reads": (
        "  client.arguments.max_turns: {levels: [2, 5]}",
        "does not read an argument 'max_turns': it would change nothing",
    ),
    "unknown model": ("  model: {levels: ['builtin:tiny-calc', 'builtin:huge']}", "no built-in model 'builtin:huge'"),
    "unknown task": ("  task: {levels: [calculator, chess]}", "there is no task 'chess'"),
    "uneven bundle": (
        "  recipe: {levels: {a: {learning_rate: 1e-3}, b: {learning_rate: 1e-3, algorithm.clip_high: 0.3}}}",
        "level 'a' does not set algorithm.clip_high",
    ),
    "bundle of an unknown setting": (
        "  recipe: {levels: {a: {learning_rat: 1e-3}, b: {learning_rat: 2e-3}}}",
        "did you mean 'learning_rate'?",
    ),
    "mix that does not add up": (
        "  task_mix: {levels: {even: {a: 0.5, b: 0.6}, one: {a: 1.0}}}",
        "add up to 1",
    ),
    "bundle of a setting": (
        "  recipe: {levels: {a: {steps: 5}, b: {steps: 9}}}",
        "'steps' is a factor too",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_that_can_not_be_set_is_refused(name):
    factors, wanted = FACTORS[name]
    factor = factors.split(":")[0].strip()
    assert wanted in refused(f"kind: best, factor: {factor}", factors)


def test_two_factors_that_set_the_same_thing_are_refused():
    factors = "  batch_size: {levels: [1, 2]}\n  train_batch_size: {levels: [4, 8]}"
    message = refused("kind: interaction, factor: batch_size, across: train_batch_size", factors)
    assert "both set batch.tasks" in message


def cell(factors: str, level: str | float) -> dict[str, object]:
    name = factors.split(":")[0].strip()
    spec = goal(f"kind: best, factor: {name}", factors)
    found = cell_settings(spec, {name: level})
    return {
        **found.training,
        "model": found.model,
        "task": found.task,
        "limits": found.limits,
        "arguments": found.arguments,
    }


def test_a_named_level_stands_for_a_task_mix_with_its_schedule():
    mix = "  task_mix: {levels: {even: {a: 0.5, b: 0.5}, staged: [{from_step: 0, shares: {a: 1.0}}, {from_step: 9, shares: {b: 1.0}}]}}"
    staged = cell(mix, "staged")["batch.mix"]
    assert staged == [
        {"from_step": 0, "shares": {"a": 1.0}},
        {"from_step": 9, "shares": {"b": 1.0}},
    ]


def test_a_named_level_may_set_several_settings_at_once():
    recipe = "  recipe: {levels: {a: {learning_rate: 1e-3, algorithm.clip_high: 0.2}, b: {learning_rate: 2e-3, algorithm.clip_high: 0.3}}}"
    found = cell(recipe, "b")
    assert (found["optimizer.lr"], found["algorithm.clip_high"]) == (0.002, 0.3)


def test_a_factor_may_have_a_name_of_its_own_and_a_path():
    found = cell("  clipping: {levels: [0.2, 0.3], path: algorithm.clip_high}", 0.3)
    assert found["algorithm.clip_high"] == 0.3


def test_limits_and_arguments_of_the_client_are_places_too():
    limits = cell("  limits.max_time_s: {levels: [60, 120]}", 120)["limits"]
    assert limits.max_time_s == 120  # pyright: ignore[reportAttributeAccessIssue]
    assert cell("  client.arguments.parallel: {levels: [4, 8]}", 8)["arguments"] == {"parallel": 8}


def test_a_cell_reaches_every_part_of_its_blueprint():
    spec = goal(
        "kind: best, factor: algorithm.name, across: client.arguments.parallel",
        f"{WORDS}\n  client.arguments.parallel: {{levels: [4, 8]}}",
        f"evaluations: [step-5, 10]\npython: {sys.executable}\n"
        "stop_rules: [{metric: entropy, when: below, value: 0.01, steps: 3}]",
    )
    spec = spec.model_copy(
        update={"settings": {**spec.settings, "gpus": 1, "limits.max_time_s": 60}}
    )
    plan = SweepPlanner().next(spec, World(spec, SweepPlanner(), lambda _f, _r: 0.0, 1).records())
    client = client_bundle("calculator")
    blueprint = build_blueprints(spec, plan, 1, {"calculator": client}, Path())[0]  # pyright: ignore[reportArgumentType]
    assert blueprint.evaluator.rounds == ("initial", "step-5", "step-10", "final")
    assert blueprint.servers[0].train.eval_gate.at_steps == (0, 5, 10)
    assert blueprint.stop_rules == spec.stop_rules
    assert (blueprint.servers[0].gpus, blueprint.resources.gpus, blueprint.limits.max_time_s) == (
        1,
        1,
        60,
    )
    assert blueprint.clients[0].environment.python == sys.executable
    assert blueprint.clients[0].arguments["parallel"] == 4
    assert blueprint.clients[0].arguments["held_out_items"] == 40


# --- paths and rounds ------------------------------------------------------------------------------------------


def test_every_path_that_is_not_there_is_missing(tmp_path):
    more = "code: src\nreference: [guide.md, 'https://example.org/tutorial']\nwrite_to: out\npython: bin/python"
    message = refused("kind: best, factor: algorithm.name", more=more, folder=tmp_path)
    assert "3 mistakes" in message
    for wanted in (
        "no folder 'src'",
        "no file or folder 'guide.md'",
        "no interpreter 'bin/python'",
    ):
        assert wanted in message


def test_paths_that_are_there_are_accepted_also_with_spaces_and_other_letters(tmp_path):
    folder = tmp_path / "mein Projekt für später"
    (folder / "src").mkdir(parents=True)
    (folder / "guide.md").touch()
    spec = goal(
        "kind: best, factor: algorithm.name",
        more=f"code: src\nreference: guide.md\nwrite_to: src/a3r\npython: {sys.executable}",
        folder=folder,
    )
    assert spec.reference == ("guide.md",)


def test_written_code_never_goes_over_the_users_own(tmp_path):
    (tmp_path / "src").mkdir()
    for place in ("src", "."):
        message = refused(
            "kind: best, factor: algorithm.name",
            more=f"code: src\nwrite_to: {place}",
            folder=tmp_path,
        )
        assert "holds your code base 'src'" in message
    (tmp_path / "file").touch()
    assert "which is a file" in refused(
        "kind: best, factor: algorithm.name", more="write_to: file", folder=tmp_path
    )


@pytest.mark.parametrize("steps", ["[0]", "[20]", "[5, 5]", "[9, 5]"])
def test_evaluations_lie_between_version_0_and_the_end(steps):
    assert "evaluation" in refused(
        "kind: best, factor: algorithm.name", more=f"evaluations: {steps}"
    )


def test_an_unknown_key_of_a_stop_rule_is_named_with_the_nearest():
    rule = "stop_rules: [{metric: entropy, when: below, valu: 0.1}]"
    assert "did you mean 'value'?" in refused("kind: best, factor: algorithm.name", more=rule)


# --- check -----------------------------------------------------------------------------------------------------


def test_check_says_what_each_kind_of_question_means(tmp_path):
    best = checked(tmp_path, "kind: best, factor: algorithm.name", more="smallest_effect: 0.1")
    assert best.understood[0] == "Find the best algorithm.name among grpo, rloo."
    assert any("Equivalent means" in s for s in best.understood)
    compared = checked(tmp_path, "kind: comparison, factor: algorithm.name")
    assert compared.understood[0] == "Compare algorithm.name = rloo with grpo."
    crossed = checked(
        tmp_path,
        "kind: interaction, factor: algorithm.name, across: group_size",
        f"{WORDS}\n  group_size: {{levels: [4, 8]}}",
    )
    assert (
        "whether group_size (4, 8) changes what algorithm.name (grpo, rloo) does"
        in crossed.understood[0]
    )


def test_check_says_what_names_of_levels_stand_for(tmp_path):
    recipe = "  recipe: {levels: {a: {learning_rate: 1e-3}, b: {learning_rate: 2e-3}}}"
    found = checked(tmp_path, "kind: best, factor: recipe", recipe)
    assert (
        "Levels of recipe: a is learning_rate = 0.001; b is learning_rate = 0.002."
        in found.understood
    )


def test_estimates_hold_for_a_played_campaign(tmp_path):
    for question, factors in (
        ("kind: best, factor: train_batch_size", SIZES),
        ("kind: comparison, factor: train_batch_size", SIZES),
        (
            "kind: interaction, factor: algorithm.name, across: group_size",
            f"{WORDS}\n  group_size: {{levels: [2, 4, 8]}}",
        ),
    ):
        found = checked(tmp_path, question, factors)
        spec = goal(question, factors)
        spec = spec.model_copy(update={"settings": {"steps": 1}})
        records = World(
            spec, SweepPlanner(), lambda f, rng: len(str(f)) / 500 + rng.gauss(0, 0.02), 1
        ).play()
        assert found.estimated_runs is not None
        assert found.estimated_runs[0] <= len(records.runs) <= found.estimated_runs[1]


def test_check_tells_the_language_models_share_and_gpu_hours_at_most(tmp_path):
    found = checked(
        tmp_path,
        "kind: best, factor: algorithm.name",
        more="budget: {llm_usd: 5, llm_calls: 100}\nplanner: llm",
    )
    assert (
        found.llm
        == "at most USD 5, 100 calls for the language model; 15% of it is kept for the report's interpretation"
    )
    assert found.most_gpu_hours is None
    free = checked(tmp_path, "kind: best, factor: algorithm.name", more="planner: llm")
    assert any("the language model has no limit" in w for w in free.warnings)
    gpus = checked(
        tmp_path, "kind: best, factor: resources.gpus", "  resources.gpus: {levels: [1, 2]}"
    )
    assert gpus.estimated_runs is not None
    assert gpus.most_gpu_hours == pytest.approx(gpus.estimated_runs[1] * 2 * 0.25)


def test_check_says_when_the_seeds_can_not_show_what_matters(tmp_path):
    found = checked(
        tmp_path,
        "kind: comparison, factor: algorithm.name",
        more="smallest_effect: 0.02\nseeds: {replicate: 3}",
    )
    assert any("will most likely stay open with these seeds" in w for w in found.warnings)
    assert "A test by permutation alone could reach p = 0.125 at best" in found.resolvable


def test_check_says_that_a_tie_needs_a_smallest_effect(tmp_path):
    found = checked(tmp_path, "kind: best, factor: algorithm.name")
    assert any("there is no `smallest_effect`" in w for w in found.warnings)


# --- the guide -------------------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "goal.md"


def test_the_guides_example_is_a_good_goal():
    front = GUIDE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert parse_goal(front, GUIDE).question.kind == "minimum"


def test_the_guide_names_every_key_of_a_goal():
    told = GUIDE.read_text(encoding="utf-8")
    keys = [*GoalSpec.model_fields, *Budget.model_fields, *Question.model_fields]
    assert [key for key in keys if f"`{key}`" not in told] == []
