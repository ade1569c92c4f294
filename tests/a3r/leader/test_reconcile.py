from __future__ import annotations

import json
from pathlib import Path

from a3r.core.types import AttemptState, CampaignState, FailureClass, ReviewMode, ReviewStatus
from a3r.report.verify import verify
from tests.a3r.leader.rig import Rig


def events_of(rig: Rig, campaign: str) -> list[str]:
    return [e.kind for e in rig.store.events(campaign, limit=10_000)]


def claims_in(folder: str) -> list[dict]:
    return json.loads((Path(folder) / "claims.json").read_text(encoding="utf-8"))


def test_a_campaign_runs_from_its_goal_to_a_verified_report(rig):
    campaign = rig.start()
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.DONE
    assert row.failure is None
    folder = Path(row.report_path)
    assert folder == rig.folder / "reports" / campaign
    report = verify(folder, rig.store)
    assert report.ok
    assert report.level == "equal to the database"
    assert "4" in (folder / "report.md").read_text(encoding="utf-8")
    assert [s.kind for s in rig.store.stages(campaign)] == ["coarse", "refine", "replicate"]
    kinds = events_of(rig, campaign)
    for kind in ("stage_planned", "blueprint_approved", "stage_running", "stage_analysed"):
        assert kinds.count(kind) >= 3
    assert kinds[-1] == "campaign_done"
    assert {r.by for r in rig.store.reviews(campaign)} == {"review-mode-none"}
    check_decisions(rig, campaign)
    before = len(kinds)
    assert not rig.tick()
    assert len(events_of(rig, campaign)) == before


def check_decisions(rig, campaign):
    """Each carries the numbers that it rests on."""
    decisions = rig.store.decisions(campaign)
    assert [d.what for d in decisions] == [
        "plan stage 1: coarse",
        "plan stage 2: refine",
        "plan stage 3: replicate",
        "conclude: answered",
    ]
    assert decisions[1].evidence["cells"][0]["n"] == 2
    assert decisions[3].evidence["verdicts"][0]["level"] == 4
    assert all(d.why for d in decisions)


def test_a_stage_waits_until_a_person_decided_on_every_blueprint(tmp_path, small):
    rig = Rig(tmp_path, small, review=ReviewMode.STAGE)
    campaign = rig.start()
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.AWAITING_REVIEW
    rig.clock.at += 1e6
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.AWAITING_REVIEW
    assert rig.store.runs(campaign) == []
    *others, last = rig.store.blueprints(campaign)
    for blueprint in others:
        approve(rig, blueprint)
    rig.until_quiet()
    assert rig.store.runs(campaign) == []
    decide(rig, last, ReviewStatus.REJECTED)
    rig.until_quiet()
    runs = rig.store.runs(campaign)
    assert {r.blueprint_id for r in runs} == {b.id for b in others}
    assert {r.state.value for r in runs} == {"succeeded"}  # waiting used none of the wall clock
    assert rig.row(campaign).state in {CampaignState.AWAITING_REVIEW, CampaignState.DONE}
    rig.close()


def decide(rig: Rig, blueprint, verdict: ReviewStatus) -> None:
    rig.store.review(blueprint.id, blueprint.content_hash, verdict, "ada", "", rig.clock.time())


def approve(rig: Rig, blueprint) -> None:
    decide(rig, blueprint, ReviewStatus.APPROVED)


def approve_all(rig: Rig, campaign: str) -> None:
    for blueprint in rig.store.blueprints(campaign):
        approve(rig, blueprint)


def test_a_rejected_blueprint_is_reported_as_not_run(tmp_path, small):
    rig = Rig(tmp_path, small, review=ReviewMode.STAGE)
    campaign = rig.start()
    for _ in range(30):
        rig.until_quiet()
        pending = [b for b in rig.store.blueprints(campaign) if b.review is ReviewStatus.PENDING]
        if not pending:
            break
        for blueprint in pending:
            rejected = blueprint.name == "s1-b1"
            decide(rig, blueprint, ReviewStatus.REJECTED if rejected else ReviewStatus.APPROVED)
    row = rig.row(campaign)
    assert row.state is CampaignState.DONE
    text = (Path(row.report_path) / "report.md").read_text(encoding="utf-8")
    assert "not run (review: rejected)" in text
    rig.close()


def test_rejecting_everything_ends_without_an_answer(tmp_path, small):
    rig = Rig(tmp_path, small, review=ReviewMode.STAGE)
    campaign = rig.start()
    rig.until_quiet()
    for blueprint in rig.store.blueprints(campaign):
        decide(rig, blueprint, ReviewStatus.REJECTED)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    assert rig.store.stages(campaign)[0].state.value == "abandoned"
    assert rig.store.decisions(campaign)[-1].what == "conclude: no_data"
    rig.close()


def test_an_edit_during_a_stage_asks_again_before_that_blueprint_runs(tmp_path, small):
    rig = Rig(tmp_path, small, review=ReviewMode.STAGE)
    campaign = rig.start()
    rig.tick()
    approve_all(rig, campaign)
    rig.tick()
    smallest = rig.store.blueprint(f"{campaign}/s1-b1")
    edited = smallest.blueprint.model_copy(update={"notes": "changed"})
    rig.store.replace_blueprint(smallest.id, edited, rig.clock.time())
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.AWAITING_REVIEW
    approve(rig, rig.store.blueprint(smallest.id))
    rig.until_quiet()
    assert rig.store.stages(campaign)[0].state.value == "analysed"
    rig.close()


def test_a_blueprint_that_is_rejected_while_it_waits_never_runs(tmp_path, small):
    rig = Rig(tmp_path, small, review=ReviewMode.STAGE)
    campaign = rig.start()
    rig.tick()
    approve_all(rig, campaign)
    rig.tick()
    smallest = rig.store.blueprint(f"{campaign}/s1-b1")
    decide(rig, smallest, ReviewStatus.REJECTED)
    rig.until_analysed(campaign)
    runs = [r for r in rig.store.runs(campaign) if r.blueprint_id == smallest.id]
    assert {(r.state.value, r.reason) for r in runs} == {
        ("cancelled", "not run: the blueprint was rejected")
    }
    rig.close()


def test_attempts_are_queued_within_the_capacity_and_the_longest_runs_first(rig):
    campaign = rig.start()
    rig.tick()
    queued = rig.store.attempts(campaign)
    assert len(queued) == 4  # twice the capacity of 2
    first = rig.store.run(queued[0].run_id)
    assert rig.store.blueprint(first.blueprint_id).name == "s1-b8"


def test_a_failed_attempt_is_tried_again_and_noted_as_a_deviation(rig):
    fails = {"left": 1}

    def truth(factors, seed):
        if factors["train_batch_size"] == 8 and fails["left"]:
            fails["left"] -= 1
            return None
        return rig.truth(factors, seed)

    rig.worker.truth = truth
    campaign = rig.start()
    rig.until_analysed(campaign)
    noted = rig.store.deviations(campaign)
    assert [d.data["failure"] for d in noted] == ["client_crash"]
    assert {r.state.value for r in rig.store.runs(campaign)[:4]} == {"succeeded"}


def test_a_permanent_failure_is_not_tried_again(rig):
    rig.worker.failure = FailureClass.IMPORT
    rig.worker.truth = lambda factors, seed: (
        None if factors["train_batch_size"] == 1 else rig.truth(factors, seed)
    )
    campaign = rig.start()
    rig.until_analysed(campaign)
    failed = [r for r in rig.store.runs(campaign) if r.state.value == "failed"]
    assert len(failed) == 2
    assert all(len(rig.store.attempts_of_run(r.id)) == 1 for r in failed)
    assert all(r.failure is FailureClass.IMPORT for r in failed)


def test_a_stage_of_which_nothing_succeeded_blocks_and_says_what_to_do(rig):
    rig.worker.truth = lambda _f, _s: None
    campaign = rig.start()
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.BLOCKED
    assert "stage 1 (coarse): none of its runs succeeded" in row.failure
    assert "hint:" in row.failure
    assert len(rig.worker.played) == 2 * len(rig.store.runs(campaign))
    assert not rig.tick()
    rig.store.set_campaign_state(campaign, CampaignState.RUNNING)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    assert rig.store.decisions(campaign)[-1].what == "conclude: no_data"


def test_a_stop_cancels_what_waits_asks_workers_and_writes_a_partial_report(rig):
    campaign = rig.start()
    rig.tick()
    rig.worker.work()
    held = rig.worker.hold()
    rig.store.request_stop(campaign)
    rig.tick()
    assert rig.store.attempt(held.id).stop_reason == "the campaign was stopped"
    assert not rig.tick()
    assert rig.row(campaign).state is CampaignState.RUNNING
    rig.worker.obey(held)
    rig.until_quiet()
    row = rig.row(campaign)
    assert row.state is CampaignState.STOPPED
    assert verify(Path(row.report_path), rig.store).ok
    runs = rig.store.runs(campaign)
    assert sorted(r.state.value for r in runs) == ["cancelled"] * 3 + ["succeeded"]
    assert {r.reason for r in runs if r.state.value == "cancelled"} == {"the campaign was stopped"}


def test_a_stop_before_anything_ran_is_reported_too(rig):
    campaign = rig.start()
    rig.store.request_stop(campaign)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.STOPPED


def test_the_wall_clock_budget_ends_planning_but_not_what_runs(rig):
    campaign = rig.start()
    rig.tick()
    held = rig.worker.hold()
    rig.clock.at += 21 * 60
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.RUNNING
    rig.worker.finish(held)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    assert rig.store.decisions(campaign)[-1].what == "conclude: wall_clock"
    cancelled = [r for r in rig.store.runs(campaign) if r.state.value == "cancelled"]
    assert len(cancelled) == 3
    text = (Path(rig.row(campaign).report_path) / "report.md").read_text(encoding="utf-8")
    assert "wall clock" in text


def test_a_lost_attempt_is_replaced(rig):
    campaign = rig.start()
    rig.tick()
    held = rig.worker.hold()
    rig.clock.at += 100
    rig.store.expire_leases(rig.clock.time(), 0.0)
    rig.tick()
    assert rig.store.attempt(held.id).state is AttemptState.UNREACHABLE
    assert len(rig.store.attempts_of_run(held.run_id)) == 1
    rig.store.mark_lost(held.id, "no answer", rig.clock.time())
    rig.until_analysed(campaign)
    assert len(rig.store.attempts_of_run(held.run_id)) == 2


def test_a_run_that_a_person_cancelled_is_not_tried_again_however_its_attempt_ended(rig):
    campaign = rig.start()
    rig.tick()
    held = rig.worker.hold()
    rig.store.request_attempt_stop(held.id, "a person cancelled the run", rig.clock.time())
    rig.clock.at += 100
    rig.store.expire_leases(rig.clock.time(), 0.0)
    rig.store.mark_lost(held.id, "its host burnt down", rig.clock.time())
    rig.until_analysed(campaign)
    assert len(rig.store.attempts_of_run(held.run_id)) == 1
    run = rig.store.run(held.run_id)
    assert (run.state.value, run.reason) == ("cancelled", "a person cancelled the run")
