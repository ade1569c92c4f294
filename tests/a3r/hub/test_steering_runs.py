from a3r.core.types import AttemptState, CampaignState, RunState, StageState


async def test_a_waiting_run_is_cancelled_at_once_and_one_under_way_by_its_worker(study):
    study.queue(1)
    waiting = study.runs()[1].id
    body = (await study.api("POST", f"runs/{waiting}/cancel")).json()
    assert (body["state"], body["attempts"][-1]["state"]) == ("cancelled", "cancelled")
    spec = await study.claimed(0)
    body = (await study.api("POST", f"runs/{spec.run_id}/cancel")).json()
    assert body["attempts"][-1]["stop_reason"] == "a person cancelled the run"
    assert study.store.run(spec.run_id).state is RunState.ACTIVE
    again = await study.api("POST", f"runs/{waiting}/cancel")
    assert again.json()["state"] == "cancelled"
    assert (await study.api("POST", "runs/nothing/cancel")).status_code == 404


async def test_a_failed_run_gets_one_more_attempt_that_is_disclosed_and_a_blocked_campaign_goes_on(
    study,
):
    run = study.runs()[0].id
    study.store.set_run_state(run, RunState.FAILED, reason="no key")
    study.store.set_campaign_state(study.campaign_id, CampaignState.BLOCKED, failure="all failed")
    body = (await study.api("POST", f"runs/{run}/retry")).json()
    assert (body["state"], body["reason"]) == ("pending", "")
    assert study.store.attempts_of_run(run)[-1].state is AttemptState.QUEUED
    assert study.store.campaign(study.campaign_id).state is CampaignState.RUNNING
    told = study.store.deviations(study.campaign_id)[-1]
    assert told.data == {"remedy": "new_attempt", "why": "no key"}
    assert (await study.api("POST", f"runs/{run}/retry")).status_code == 409  # it is under way


async def test_a_run_of_an_analysed_stage_is_not_retried(study):
    run = study.runs()[0].id
    study.store.set_run_state(run, RunState.FAILED, reason="x")
    stage = study.store.stages(study.campaign_id)[0]
    study.store.set_stage_state(stage.id, StageState.RUNNING)
    study.store.set_stage_state(stage.id, StageState.ANALYSED, {})
    answer = await study.api("POST", f"runs/{run}/retry")
    assert answer.status_code == 409
    assert "its stage was analysed" in answer.json()["error"]["message"]


async def test_a_run_is_found_by_its_blueprint_when_it_is_the_only_one(study, tmp_path):
    several = await study.api("GET", "runs/b16")
    assert several.status_code == 409
    first, second = study.runs()
    hint = several.json()["error"]["hint"]
    assert f"{first.id} (b16 seed 1)" in hint
    assert f"{second.id} (b16 seed 2)" in hint
    blueprint = study.store.blueprint(first.blueprint_id).blueprint
    alone = blueprint.model_copy(update={"name": "b1", "seeds": (7,)})
    stage = study.store.add_stage(study.campaign_id, "fine", {}, [(alone, "a" * 64)], 1000.0)
    made = study.store.blueprints(study.campaign_id, stage.id)[0]
    (run,) = study.store.ensure_runs(made.id)
    # b1 begins another name too, and is no part of it here.
    assert (await study.api("GET", "runs/b1")).json()["id"] == run.id
