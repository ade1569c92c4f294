from __future__ import annotations

from pathlib import Path

import pytest

from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_check import check_goal
from a3r.leader.goal_parsing import parse_goal, read_goal
from a3r.leader.goal_text import prose_of

PATH = Path("campaigns/x/goal.md")


def refused(text: str) -> str:
    with pytest.raises(GoalError) as caught:
        parse_goal(text, PATH)
    assert caught.value.hint
    return caught.value.message


def test_a_good_goal_becomes_data_with_numbers_read_as_yaml_1_2(goal_text):
    spec = parse_goal(goal_text, PATH)
    assert spec.settings["learning_rate"] == 0.002
    assert spec.levels == (1, 2, 4, 8, 16, 32, 64)
    assert spec.conditions == (10, 16)
    assert spec.cell(8, 16) == {"train_batch_size": 8, "max_response_tokens": 16}


def test_a_goal_survives_json(goal_text):
    spec = parse_goal(goal_text, PATH)
    assert GoalSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_a_range_gives_the_same_levels_as_a_list(goal_text):
    listed = "{levels: [1, 2, 4, 8, 16, 32, 64]}"
    ranged = goal_text.replace(listed, "{range: [1, 64], scale: log2}")
    assert parse_goal(ranged, PATH) == parse_goal(goal_text, PATH)
    steps = goal_text.replace(listed, "{range: [2, 8], scale: linear, step: 3}")
    assert parse_goal(steps, PATH).levels == (2, 5, 8)


def test_levels_are_put_in_order(goal_text):
    mixed = goal_text.replace("[1, 2, 4, 8, 16, 32, 64]", "[16, 1, 4]")
    assert parse_goal(mixed, PATH).levels == (1, 4, 16)


def test_a_dotted_path_of_the_training_configuration_is_a_setting_too(goal_text):
    spec = parse_goal(goal_text.replace("steps: 5", "algorithm.clip_high: 0.3"), PATH)
    assert spec.settings["algorithm.clip_high"] == 0.3


def test_the_shipped_goal_is_understood_without_a_mistake(demo):
    check = check_goal(demo)
    assert check.ok
    assert any("smallest train_batch_size" in s for s in check.understood)
    assert check.estimated_runs is not None
    assert check.estimated_runs[0] < check.estimated_runs[1]
    assert "5 fresh seeds" in check.resolvable
    assert prose_of(demo.read_text(encoding="utf-8")).startswith("# How small")


MISTAKES = {
    "no metric": (
        "metric: {name: held_out_reward, direction: maximize, items: 40}\n",
        "",
        ["there is no metric", "metric: {name: held_out_reward"],
    ),
    "no question": (
        "question: {kind: minimum, factor: train_batch_size, across: max_response_tokens}\n",
        "",
        ["there is no question"],
    ),
    "one level": ("{levels: [10, 16]}", "{levels: [16]}", ["line 8", "1 level(s)", "settings"]),
    "level twice": ("[10, 16]", "[16, 16]", ["a level occurs twice"]),
    "unknown task": ("task: calculator", "task: calculater", ["line 4", "did you mean 'calculator'"]),
    "unknown model": ("tiny-calc", "tiny-cal", ["line 5", "did you mean 'builtin:tiny-calc'"]),
    "model folder": ("builtin:tiny-calc", "models/none", ["no config.json", "builtin:tiny-calc"]),
    "unknown key": ("capacity: 2", "capacty: 2", ["unknown key 'capacty'", "did you mean 'capacity'"]),
    "unknown inner key": ("max_stages: 8", "max_stage: 8", ["line 16", "did you mean 'max_stages'"]),
    "unknown factor key": ("{levels: [10, 16]}", "{level: [10, 16]}", ["did you mean 'levels'"]),
    "level out of range": ("[1, 2, 4,", "[0, 2, 4,", ["train_batch_size = 0", "greater than or equal to 1"]),
    "level of a wrong type": ("[10, 16]", "[10.5, 16]", ["max_response_tokens = 10.5", "integer"]),
    "setting out of range": ("learning_rate: 2e-3", "learning_rate: -1.0", ["line 12", "greater than 0"]),
    "unknown setting": ("group_size: 4", "groupsize: 4", ["line 13", "did you mean 'group_size'"]),
    "setting of a closed set": ("group_size: 4", "algorithm.name: ppo", ["grpo", "choose one of"]),
    "same setting twice": ("group_size: 4", "group_size: 4\n  batch.repeat: 2", ["the same setting"]),
    "reserved setting": ("group_size: 4", "seed: 4", ["set by the campaign itself"]),
    "setting is a factor": ("group_size: 4", "batch.tasks: 4", ["is a factor too"]),
    "question of another kind": ("kind: minimum", "kind: maximum", ["line 3", "no question of kind 'maximum'", "'minimum'"]),
    "factor of the question": ("factor: train_batch_size", "factor: batch", ["'batch' is not among the factors"]),
    "across of the question": ("across: max_response_tokens", "across: x", ["across 'x' is not among"]),
    "across itself": ("across: max_response_tokens", "across: train_batch_size", ["across itself"]),
    "words as levels": ("[1, 2, 4, 8, 16, 32, 64]", "[small, large]", ["a minimum needs numbers"]),
    "third factor": (
        "  max_response_tokens: {levels: [10, 16]}",
        "  max_response_tokens: {levels: [10, 16]}\n  learning_rate: {levels: [1e-3, 2e-3]}",
        ["'learning_rate' is neither"],
    ),
    "unknown planner": ("capacity: 2", "planner: magic", ["there is no planner 'magic'", "sweep"]),
    "wrong direction": ("direction: maximize", "direction: minimize", ["better when it is larger"]),
    "too few runs": ("max_stages: 8", "max_runs: 3", ["max_runs is 3", "8 runs"]),
    "bad yaml": ("task: calculator", "task: [calculator", ["not YAML", "at line"]),
    "duplicate key": ("capacity: 2", "capacity: 2\ncapacity: 3", ["not YAML", "capacity"]),
    "confidence": ("confidence: 0.95", "confidence: 95", ["'criterion.confidence' is 95"]),
    "range the wrong way": ("{levels: [10, 16]}", "{range: [16, 10]}", ["the smaller (at least 1) first"]),
    "no levels": ("{levels: [10, 16]}", "12", ["'factors.max_response_tokens' is 12"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_with_what_to_write_instead(goal_text, name):
    old, new, wanted = MISTAKES[name]
    assert old in goal_text
    message = refused(goal_text.replace(old, new, 1))
    for text in wanted:
        assert text in message


def test_several_mistakes_are_listed_together(goal_text):
    broken = goal_text.replace("task: calculator", "task: chess").replace("[10, 16]", "[16]")
    message = refused(broken)
    assert "2 mistakes" in message
    assert "chess" in message
    assert "1 level(s)" in message


def test_an_empty_goal_shows_what_to_start_from():
    with pytest.raises(GoalError) as caught:
        parse_goal(" \n\n", PATH)
    assert "is empty" in caught.value.message
    assert "question: {kind: minimum" in caught.value.hint


def test_prose_alone_says_that_it_needs_data_or_a_language_model():
    with pytest.raises(GoalError) as caught:
        parse_goal("# Find the best batch size\n", PATH)
    assert "no front matter" in caught.value.message
    assert "language model" in caught.value.message
    assert "factors:" in caught.value.hint


def test_front_matter_that_never_closes_is_named_by_its_line():
    assert "opens at line 2 and never closes" in refused("\n---\nname: x\n")


def test_front_matter_without_keys_is_refused():
    assert "holds no keys" in refused("---\n\n---\n")
    assert "line 2: expected 'key: value' lines" in refused("---\n- a\n---\n")
    assert "line 3: seeds.first: '2026-01-01' is a date" in refused(
        "---\nname: x\nseeds: {first: 2026-01-01}\n---\n"
    )


def test_a_goal_that_is_not_utf8_is_refused_with_the_byte(tmp_path):
    file = tmp_path / "goal.md"
    file.write_bytes(b"---\nname: caf\xe9\n---\n")
    with pytest.raises(GoalError, match="not UTF-8: byte 13 is 0xe9"):
        read_goal(file)


def test_a_missing_goal_is_refused(tmp_path):
    with pytest.raises(GoalError, match="can not be read: No such file"):
        read_goal(tmp_path / "none.md")


def test_a_folder_stands_for_its_goal_file_also_with_spaces_and_other_letters(goal_text, tmp_path):
    folder = tmp_path / "mein Ziel für später"
    folder.mkdir()
    (folder / "goal.md").write_text(goal_text, encoding="utf-8")
    assert read_goal(folder).name == "a small question"


def test_check_reports_mistakes_instead_of_raising(tmp_path):
    file = tmp_path / "goal.md"
    file.write_text("---\nname: x\n---\n", encoding="utf-8")
    check = check_goal(file)
    assert not check.ok
    assert any("there is no metric" in m for m in check.mistakes)
    assert check.understood == []


def test_check_warns_of_an_undisclosed_pilot_and_of_missing_review(goal_text, tmp_path):
    file = tmp_path / "goal.md"
    file.write_text(goal_text.replace('pilot: "none"', "review: none"), encoding="utf-8")
    warnings = " ".join(check_goal(file).warnings)
    assert "`pilot` is empty" in warnings
    assert "without a person's approval" in warnings
