from __future__ import annotations

import copy
import json

import pytest

from a3r.core.errors import GoalError, ReplyInvalid
from a3r.core.types import ReviewMode
from a3r.leader.goal import GoalSpec
from a3r.leader.llm.desk import Desk
from a3r.leader.understanding.demands import constraints_of, name_of
from a3r.leader.understanding.session import TRIES, read_prose
from a3r.store.store import Store
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.script import said


def read(text, path, *readings):
    model = ScriptedModel([said(r) for r in readings])
    with Store.open(path.parent / "a3r.db") as store:
        row = store.create_campaign("g", text, ".", {}, ReviewMode.STAGE, "llm", 1.0)
        return read_prose(Desk(store, model, row.id), text, path, model=model.name), model


def changed(reading, edit):
    found = copy.deepcopy(reading)
    edit(found)
    return found


def source_of(reading, key):
    return next(s for s in reading["sources"] if s["key"] == key)


def test_the_papers_goal_is_read_word_for_word(tmp_path, goal_b, reading_b):
    found, model = read(goal_b, tmp_path / "goal.md", reading_b)
    spec = GoalSpec.model_validate(found.goal_spec)
    assert spec.question.kind == "minimum"
    assert spec.levels == (1, 2, 4, 8, 16, 32, 64)
    assert spec.conditions == (2048, 8192)
    assert spec.settings == {"steps": 60, "gpus": 8, "ppo_epochs": 1, "minibatches": 1}
    assert spec.planner == "llm"
    assert spec.review.value == "stage"
    assert spec.write_to.endswith("auto_research")
    assert len(spec.constraints) == 8
    assert spec.constraints[0] == "Base code project directory: agentjet_codebase."
    assert [a.key for a in found.assumptions] == ["factors.max_response_length_in_one_turn"]
    assert found.in_words == ()
    assert len(model.asked) == 1


def test_what_is_not_on_this_machine_is_said_and_asked_of_a_person(tmp_path, goal_b, reading_b):
    found, _ = read(goal_b, tmp_path / "goal.md", reading_b)
    told = "\n".join(found.missing)
    for name in ("Qwen3-8B", "agentjet_codebase", ".venv/bin/python"):
        assert name in told
    (tmp_path / "agentjet_codebase/tutorial/opencode_build_aime").mkdir(parents=True)
    again, _ = read(goal_b, tmp_path / "goal.md", reading_b)
    assert len(again.missing) < len(found.missing)


def test_the_prompt_quotes_the_goal_as_data_and_shows_no_lead(tmp_path, goal_b, reading_b):
    _, model = read(goal_b, tmp_path / "goal.md", reading_b)
    sent = "\n".join(m.content for m in model.asked[0].messages)
    assert goal_b.strip() in sent
    assert "<<<data" in sent


def _drop_source(reading):
    reading["sources"] = [s for s in reading["sources"] if s["key"] != "settings.steps"]


def _other_number(reading):
    reading["front_matter"]["settings"]["steps"] = 600


def _invented_quote(reading):
    source_of(reading, "settings.steps")["quote"] = "at most 600 steps"


def _wide_range(reading):
    reading["front_matter"]["factors"]["batch_size"] = {"range": [1, 512]}


def _no_review(reading):
    reading["front_matter"]["review"] = "none"


def _pilot(reading):
    reading["front_matter"]["pilot"] = "A pilot showed that 4 trains."


def _budget_assumed(reading):
    reading["front_matter"]["budget"] = {"llm_usd": 1000}
    reading["assumptions"].append({"key": "budget.llm_usd", "because": "it may cost more"})


def _criterion_assumed(reading):
    reading["front_matter"]["criterion"] = {"min_gain": 0.0}
    reading["assumptions"].append({"key": "criterion.min_gain", "because": "easy to reach"})


def _other_model(reading):
    reading["front_matter"]["model"] = "Qwen2.5-0.5B"


def _strange_factor(reading):
    reading["front_matter"]["factors"]["learning_rate"] = {"levels": [1e-3, 1e-2]}
    reading["front_matter"]["question"]["across"] = "learning_rate"
    reading["assumptions"].append({"key": "factors.learning_rate", "because": "interesting"})


def _unknown_factor(reading):
    factors = reading["front_matter"]["factors"]
    factors["batch_sizes_of_max"] = factors.pop("batch_size")
    source_of(reading, "factors.batch_size")["key"] = "factors.batch_sizes_of_max"


def _walls_off(reading):
    reading["front_matter"]["settings"]["client.sandbox.mode"] = "off"
    quote = source_of(reading, "settings.steps")["quote"]
    reading["sources"].append({"key": "settings.client.sandbox.mode", "quote": quote})


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (_walls_off, "leave out 'client.sandbox.mode'"),
        (_drop_source, "neither a source"),
        (_other_number, "600 does not stand in the quote"),
        (_invented_quote, "does not hold the words"),
        (_wide_range, "512 does not stand"),
        (_no_review, "leave out review"),
        (_pilot, "leave out pilot"),
        (_budget_assumed, "may not be assumed"),
        (_criterion_assumed, "may not be assumed"),
        (_other_model, "does not stand in the quote"),
        (_strange_factor, "does not speak of a factor"),
        (_unknown_factor, "batch_size"),
    ],
)
def test_a_reading_that_says_more_than_the_goal_is_sent_back(
    tmp_path, goal_b, reading_b, edit, told
):
    wrong = changed(reading_b, edit)
    found, model = read(goal_b, tmp_path / "goal.md", wrong, reading_b)
    assert GoalSpec.model_validate(found.goal_spec).settings["steps"] == 60
    assert told in model.asked[1].messages[-1].content


def test_a_reader_that_never_quotes_ends_in_a_clear_error(tmp_path, goal_b, reading_b):
    wrong = changed(reading_b, _invented_quote)
    with pytest.raises(ReplyInvalid, match="as it is written") as caught:
        read(goal_b, tmp_path / "goal.md", *[wrong] * TRIES)
    assert "front matter" in caught.value.hint


def test_what_a_person_wrote_as_front_matter_stands(tmp_path, goal_b, reading_b):
    front = "---\nname: mine\nseeds: {coarse: 3}\nsettings: {steps: 30}\nreview: all\n---\n"
    found, _ = read(front + goal_b, tmp_path / "goal.md", reading_b)
    spec = GoalSpec.model_validate(found.goal_spec)
    assert spec.name == "mine"
    assert spec.seeds.coarse == 3
    assert spec.settings["steps"] == 30
    assert spec.settings["gpus"] == 8
    assert spec.review.value == "all"


def test_a_constraint_that_no_setting_carries_out_is_kept_in_words(tmp_path, goal_b, reading_b):
    text = goal_b + "• No Chinese characters are allowed in the code.\n"
    found, _ = read(text, tmp_path / "goal.md", reading_b)
    assert found.in_words == ("No Chinese characters are allowed in the code.",)
    assert found.in_words[0] in found.goal_spec["constraints"]


def test_an_empty_goal_asks_nobody(tmp_path):
    with pytest.raises(GoalError):
        read("---\nname: x\n---\n", tmp_path / "goal.md")


def test_the_same_reading_twice_gives_the_same_goal(tmp_path, goal_b, reading_b):
    first, _ = read(goal_b, tmp_path / "goal.md", reading_b)
    second, _ = read(goal_b, tmp_path / "goal.md", reading_b)
    assert json.dumps(first.goal_spec, sort_keys=True) == json.dumps(
        second.goal_spec, sort_keys=True
    )


@pytest.mark.parametrize("mark", ["•", "-", "*", "1.", "2)"])
def test_every_bullet_counts_as_a_constraint(mark):
    prose = f"Do it.\n\nConstraints:\n\n{mark} one thing\n  that goes on\n\n{mark} another\n\nThe end.\n{mark} not this"
    assert constraints_of(prose) == ("one thing that goes on", "another")


def test_prose_without_a_list_has_no_constraints():
    assert constraints_of("Just find out.\n- a thought") == ()


@pytest.mark.parametrize(
    ("prose", "name"),
    [
        ("# A title (draft)\n\nText.", "A title"),
        ("Find the best rank. And more.", "Find the best rank"),
        ("", "study"),
        ("word " * 40, "word word word word word word word word word word word"),
    ],
)
def test_a_goal_is_named_by_its_own_words(prose, name):
    assert name_of(prose) == name
