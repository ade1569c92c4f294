from __future__ import annotations

import json

import pytest

from a3r.core.types import CampaignState, JobState
from a3r.report.files import read_records
from a3r.report.render import claims_of
from a3r.report.verify import verify
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.planner_script import careful_planner
from a3r.testing.stand_in.script import Answer


def test_a_campaign_planned_by_a_model_ends_in_a_verified_report(new_rig, goal):
    model = ScriptedModel(careful_planner())
    rig = new_rig(model)
    campaign = rig.start(goal)
    rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    found = verify(rig.report(campaign), rig.store)
    assert found.ok, found.checks
    assert [s.kind for s in rig.store.stages(campaign)] == ["explore", "explore", "replicate"]
    claims = json.loads((rig.report(campaign) / "claims.json").read_text(encoding="utf-8"))
    minimum = next(c for c in claims if c["kind"] == "minimum")
    assert "shown to train is 4" in minimum["text"]
    text = (rig.report(campaign) / "report.md").read_text(encoding="utf-8")
    assert "Possible explanation (c1)" in text
    assert "The planner's own words" in text
    fresh = rig.store.stages(campaign)[2].plan["design"]
    assert all(min(r["seeds"]) >= 3 for r in fresh)


def test_no_token_is_spent_while_runs_run(new_rig, goal):
    model = ScriptedModel(careful_planner())
    rig = new_rig(model)
    campaign = rig.start(goal)
    while not rig.store.runs(campaign):
        rig.tick()
        rig.runner.run_one()
    asked = len(model.asked)
    while any(r.state.value in ("pending", "active") for r in rig.store.runs(campaign)):
        rig.worker.work()
        rig.tick()
        if rig.store.stages(campaign)[0].state.value == "running":
            assert not rig.runner.run_one()
            assert len(model.asked) == asked


def test_the_same_script_gives_the_same_campaign(new_rig, goal):
    plans = []
    for _ in range(2):
        rig = new_rig(ScriptedModel(careful_planner()))
        campaign = rig.start(goal)
        rig.until_quiet()
        plans.append([s.plan_hash for s in rig.store.stages(campaign)])
        assert claims_of(read_records(rig.report(campaign)))
    assert plans[0] == plans[1]


def test_a_planner_without_a_model_is_blocked_and_says_what_to_do(new_rig, goal):
    rig = new_rig(None)
    campaign = rig.start(goal)
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.BLOCKED
    assert "A3R_LLM" in row.failure
    assert rig.store.runs(campaign) == []


def test_a_model_without_a_price_blocks_the_campaign_instead_of_ending_it(new_rig, goal):
    rig = new_rig(ScriptedModel(careful_planner(), price=None))
    campaign = rig.start(goal)
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.BLOCKED
    assert "A3R_LLM_PRICE" in row.failure
    assert rig.store.runs(campaign) == []


def test_replies_that_stay_useless_block_the_campaign_and_a_resume_asks_anew(new_rig, goal):
    sick = [True]
    careful = careful_planner()
    model = ScriptedModel(lambda r: Answer("I would rather talk.") if sick[0] else careful(r))
    rig = new_rig(model)
    campaign = rig.start(goal)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.BLOCKED
    assert "no reply" in rig.row(campaign).failure
    sick[0] = False
    rig.store.requeue_jobs(campaign, failed=True)
    rig.store.set_campaign_state(campaign, CampaignState.RUNNING)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE


def test_an_outage_waits_visibly_and_the_campaign_goes_on(new_rig, goal):
    down = [True]
    careful = careful_planner()
    model = ScriptedModel(
        lambda r: (
            Answer(status=429, retry_after_s=30.0, error="slow down") if down[0] else careful(r)
        )
    )
    rig = new_rig(model)
    campaign = rig.start(goal)
    rig.until_quiet()
    (job,) = rig.store.jobs(campaign)
    assert job.state is JobState.WAITING
    assert "slow down" in job.detail
    down[0] = False
    rig.until_quiet()
    assert rig.store.jobs(campaign)[0].state is JobState.WAITING
    rig.clock.at += 31.0
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE


@pytest.mark.parametrize("calls", [1, 5])
def test_when_the_money_is_gone_the_campaign_concludes_with_what_is_there(new_rig, goal, calls):
    rig = new_rig(ScriptedModel(careful_planner()))
    text = goal.replace("max_stages: 8", f"max_stages: 8, llm_calls: {calls}")
    campaign = rig.start(text)
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.DONE
    assert verify(rig.report(campaign), rig.store).ok
    decisions = [d.what for d in rig.store.decisions(campaign)]
    assert "conclude: llm_budget" in decisions


def test_a_report_does_not_wait_for_ever_for_an_interpretation(new_rig, goal):
    careful = careful_planner()

    def script(request):
        if "# Task: interpret" in request.messages[0].content:
            return Answer(status=503, error="down for days")
        return careful(request)

    rig = new_rig(ScriptedModel(script))
    campaign = rig.start(goal)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.CONCLUDING
    for _ in range(20):
        rig.clock.at += 600.0
        rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    assert verify(rig.report(campaign), rig.store).ok


def test_a_crash_between_calls_replays_and_pays_for_nothing_twice(new_rig, goal):
    careful = careful_planner()
    crash_at = [2]

    def crash(_request):
        crash_at[0] -= 1
        if crash_at[0] == 0:
            raise KeyboardInterrupt

    model = ScriptedModel(careful, before_reply=crash)
    rig = new_rig(model)
    campaign = rig.start(goal)
    rig.tick()
    with pytest.raises(KeyboardInterrupt):
        rig.runner.run_one()
    rig.runner.recover()
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    lost = [c for c in rig.store.llm_calls(campaign) if c.state.value == "failed"]
    assert len(lost) == 1
    assert verify(rig.report(campaign), rig.store).ok
