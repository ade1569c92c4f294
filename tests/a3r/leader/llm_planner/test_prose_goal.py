from __future__ import annotations

import pytest

from a3r.adapters.litellm_model import LitellmModel
from a3r.core.errors import GoalError
from a3r.core.llm import Price
from a3r.core.types import CampaignState, ReviewMode
from a3r.leader.understanding.prose import filed, needs_reader
from a3r.leader.understanding.reading import Reading
from a3r.leader.understanding.shelf import keep_reading
from a3r.report.files import read_records
from a3r.report.verify import verify
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.planner_script import careful_planner
from a3r.testing.stand_in.script import Answer, said
from a3r.testing.stand_in.server import StandIn

PROSE = """# Small batches

Find the minimum train_batch_size from 1 to 8 that still trains the calculator agent.

# Constraints

- Model: builtin:tiny-calc.
- Max steps: 2, group_size 4.
- Evaluate on 20 held-out items.
- Be frugal.
"""
READING = {
    "front_matter": {
        "question": {"kind": "minimum", "factor": "train_batch_size"},
        "task": "calculator",
        "model": "builtin:tiny-calc",
        "factors": {"train_batch_size": {"range": [1, 8]}},
        "settings": {"steps": 2, "group_size": 4},
        "metric": {"items": 20},
    },
    "sources": [
        {"key": "question", "quote": "Find the minimum train_batch_size from 1 to 8"},
        {"key": "task", "quote": "the calculator agent"},
        {"key": "model", "quote": "Model: builtin:tiny-calc"},
        {"key": "factors.train_batch_size", "quote": "train_batch_size from 1 to 8"},
        {"key": "settings.steps", "quote": "Max steps: 2"},
        {"key": "settings.group_size", "quote": "group_size 4"},
        {"key": "metric.items", "quote": "20 held-out items"},
    ],
}


def script(reading=READING):
    return careful_planner({"understand": lambda _: said(reading)})


def test_prose_becomes_a_verified_report_over_real_http_through_litellm(new_rig):
    with StandIn(script()) as provider:
        model = LitellmModel(
            "openai/stand-in",
            base_url=provider.url,
            api_key="none",
            price=Price(prompt_usd=1e-6, completion_usd=4e-6),
        )
        rig = new_rig(model)
        campaign = rig.start_prose(PROSE)
        rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    assert verify(rig.report(campaign), rig.store).ok
    records = read_records(rig.report(campaign))
    assert records.campaign.goal_text == PROSE
    assert "Be frugal." in records.campaign.goal_spec["constraints"]
    purposes = {c.purpose for c in records.calls}
    assert purposes == {"understand", "plan", "interpret"}
    assert len(records.calls) == len(provider.asked)
    assert sum(c.cost_usd or 0 for c in records.calls) > 0
    text = (rig.report(campaign) / "report.md").read_text(encoding="utf-8")
    assert "shown to train is 4" in text
    assert "Possible explanation" in text


def test_what_check_showed_is_what_the_campaign_is_frozen_on(new_rig):
    model = ScriptedModel(script())
    rig = new_rig(model)
    from a3r.leader.understanding.checks import understand

    found, faults = understand(
        Reading.model_validate(READING), PROSE, {"seeds": {"coarse": 3}}, rig.folder / "goal.md"
    )
    assert faults == []
    keep_reading(rig.workspace, PROSE, found)
    campaign = rig.start_prose(PROSE)
    rig.tick()
    rig.runner.run_one()
    rig.tick()
    assert model.asked == []
    assert rig.row(campaign).goal_spec == found.goal_spec
    assert rig.row(campaign).goal_spec["seeds"]["coarse"] == 3


def test_paths_that_are_not_there_block_until_they_are(new_rig):
    prose = PROSE.replace("- Be frugal.", "- Code: my_code.")
    reading = {
        "front_matter": {**READING["front_matter"], "code": "my_code"},
        "sources": [*READING["sources"], {"key": "code", "quote": "Code: my_code"}],
    }
    rig = new_rig(ScriptedModel(script(reading)))
    campaign = rig.start_prose(prose)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.BLOCKED
    assert "my_code" in rig.row(campaign).failure
    (rig.folder / "my_code").mkdir()
    rig.store.set_campaign_state(campaign, CampaignState.RUNNING)
    rig.tick()
    assert rig.row(campaign).goal_spec["code"] == "my_code"


def test_a_goal_that_nobody_can_read_blocks_with_the_reason(new_rig):
    rig = new_rig(ScriptedModel(lambda _: Answer("It is about batches.")))
    campaign = rig.start_prose(PROSE)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.BLOCKED
    assert "can not be read" in rig.row(campaign).failure


def test_a_prose_campaign_can_be_stopped_before_it_was_read(new_rig):
    rig = new_rig(ScriptedModel(lambda _: Answer(status=503, error="down")))
    campaign = rig.start_prose(PROSE)
    rig.until_quiet()
    rig.store.request_stop(campaign)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.STOPPED
    assert rig.store.runs(campaign) == []


def test_prose_without_a_model_says_which_keys_are_missing(tmp_path):
    with pytest.raises(GoalError) as caught:
        filed(PROSE, tmp_path / "goal.md", with_model=False)
    assert caught.value.details["missing"] == ["question", "task", "model", "factors"]
    assert "A3R_LLM" in caught.value.hint


def test_prose_with_a_model_is_filed_to_be_read(tmp_path, goal):
    made = filed(PROSE, tmp_path / "goal.md", with_model=True)
    assert (made.name, made.spec, made.planner) == ("Small batches", {}, "llm")
    assert made.review is ReviewMode.STAGE
    text = "---\nreview: all\nname: mine\n---\n" + PROSE
    made = filed(text, tmp_path / "goal.md", with_model=True)
    assert (made.name, made.review) == ("mine", ReviewMode.ALL)
    assert filed(goal, tmp_path / "goal.md", with_model=True).spec["planner"] == "llm"


@pytest.mark.parametrize(
    "front", ["seeds: {coarse: 0}", "sedes: {coarse: 2}", "budget: {max_stages: many}"]
)
def test_a_persons_mistake_is_told_to_the_person_not_to_the_model(tmp_path, front):
    with pytest.raises(GoalError):
        filed(f"---\n{front}\n---\n{PROSE}", tmp_path / "goal.md", with_model=True)


def test_a_goal_with_all_keys_needs_no_reader(tmp_path, goal):
    assert not needs_reader(goal, tmp_path / "goal.md")
    assert needs_reader(PROSE, tmp_path / "goal.md")
    with pytest.raises(GoalError):
        needs_reader("", tmp_path / "goal.md")
