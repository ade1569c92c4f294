"""Campaigns, stages, blueprints and reviews."""

from typing import Any

import pytest

from a3r.core.errors import Conflict, NotFound, StoreError
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus, StageState
from a3r.store.store import Store


def _campaign(store: Store, name: str) -> str:
    return store.create_campaign(name, "g", "d", {}, ReviewMode.STAGE, "sweep", 1.0).id


def test_a_campaign_is_found_by_id_start_of_id_and_name(store: Store) -> None:
    one, two = _campaign(store, "Größte Zahl"), _campaign(store, "Other")
    assert one.startswith("grote-zahl-")
    assert store.campaign(one).id == store.campaign("Größte Zahl").id == one
    assert store.campaign("other").id == store.campaign(two[:7]).id == two
    with pytest.raises(NotFound, match="did you mean 'Other'"):
        store.campaign("Othr")


def test_two_campaigns_of_one_name_are_told_apart(store: Store) -> None:
    one, two = _campaign(store, "same"), _campaign(store, "same")
    with pytest.raises(Conflict, match="2 campaigns match") as caught:
        store.campaign("same")
    assert one in caught.value.hint
    assert two in caught.value.hint
    assert [c.id for c in store.campaigns()] == sorted([one, two])


def test_done_and_stopped_are_final(store: Store) -> None:
    campaign = _campaign(store, "c")
    store.set_campaign_state(campaign, CampaignState.BLOCKED, failure="no credit")
    assert store.campaign(campaign).failure == "no credit"
    done = store.set_campaign_state(campaign, CampaignState.DONE, report_path="reports/c")
    assert (done.failure, done.report_path) == (None, "reports/c")
    store.set_campaign_state(campaign, CampaignState.DONE)
    with pytest.raises(Conflict, match="is done"):
        store.set_campaign_state(campaign, CampaignState.RUNNING)


def test_a_stage_and_its_blueprints_come_all_or_none(study: Any, store: Store) -> None:
    pairs = [(study.blueprint("a"), "s"), (study.blueprint("b"), "s")]
    stage = store.add_stage(study.campaign_id, "coarse", {"q": 1}, pairs, 5.0)
    assert (stage.ordinal, stage.state) == (1, StageState.PLANNED)
    again = [(study.blueprint("c"), "s"), (study.blueprint("a"), "s")]
    with pytest.raises(Conflict, match="two blueprints named 'a'"):
        store.add_stage(study.campaign_id, "refine", {"q": 2}, again, 6.0)
    twice = [(study.blueprint("d"), "s")] * 2
    with pytest.raises(Conflict, match="two blueprints named 'd'"):
        store.add_stage(study.campaign_id, "refine", {"q": 2}, twice, 6.0)
    assert [s.ordinal for s in store.stages(study.campaign_id)] == [1]
    assert [b.name for b in store.blueprints(study.campaign_id)] == ["a", "b"]


def test_a_stage_keeps_its_plan_and_ends_once(study: Any, store: Store) -> None:
    stage = store.add_stage(study.campaign_id, "coarse", {"q": 1, "levels": [1, 8]}, [], 5.0)
    store.set_stage_state(stage.id, StageState.RUNNING)
    ended = store.set_stage_state(stage.id, StageState.ANALYSED, {"minimum": 8})
    assert (ended.plan, ended.analysis) == ({"q": 1, "levels": [1, 8]}, {"minimum": 8})
    assert ended.plan_hash == stage.plan_hash
    assert ended.decided_at == study.clock.now
    with pytest.raises(Conflict, match="final"):
        store.set_stage_state(stage.id, StageState.RUNNING)


def test_a_blueprint_comes_back_equal_with_both_hashes(study: Any, store: Store) -> None:
    given = study.blueprint(factors={"lr": 1e-3, "on": "no"}, notes="Größe")
    row = study.add(given, approve=False)
    found = store.blueprint(f"Smallest batch/{given.name}")
    assert found == store.blueprint(row.id) == row
    assert found.blueprint == given
    assert (found.content_hash, found.cell_hash) == (given.content_hash(), given.cell_hash())
    with pytest.raises(NotFound, match="did you mean 'b16'"):
        store.blueprint(f"{study.campaign_id}/b61")


def test_an_approval_binds_to_the_content_and_an_edit_voids_it(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    assert store.approved(row.id)
    edited = row.blueprint.model_copy(update={"purpose": "another"})
    new = store.replace_blueprint(row.id, edited, 9.0)
    assert (new.version, new.review) == (2, ReviewStatus.PENDING)
    assert not store.approved(row.id)
    with pytest.raises(Conflict, match="changed since it was read"):
        store.review(row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "", 9.0)
    back = store.replace_blueprint(row.id, row.blueprint, 10.0)
    assert back.content_hash == row.content_hash
    assert not store.approved(row.id)
    assert [r.voided_at for r in store.reviews(study.campaign_id)] == [9.0]
    store.review(row.id, back.content_hash, ReviewStatus.APPROVED, "ada", "", 11.0)
    assert store.approved(row.id)


def test_storing_the_same_content_is_no_edit(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    assert store.replace_blueprint(row.id, row.blueprint, 9.0).version == 1
    assert store.approved(row.id)


def test_another_client_is_an_edit(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    assert store.replace_blueprint(row.id, row.blueprint, 9.0, "b" * 64).version == 2
    assert not store.approved(row.id)


def test_the_latest_verdict_stands_and_a_repeat_is_one_verdict(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    for _ in range(2):
        store.review(row.id, row.content_hash, ReviewStatus.REJECTED, "bob", "too big", 8.0)
    assert store.blueprint(row.id).review is ReviewStatus.REJECTED
    assert not store.approved(row.id)
    assert [r.verdict for r in store.reviews(study.campaign_id)] == [
        ReviewStatus.APPROVED,
        ReviewStatus.REJECTED,
    ]
    with pytest.raises(Conflict, match="not a verdict"):
        store.review(row.id, row.content_hash, ReviewStatus.PENDING, "bob", "", 8.0)


def test_a_campaign_that_is_over_takes_no_more_verdicts(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    store.set_campaign_state(study.campaign_id, CampaignState.STOPPED)
    told = store.reviews(study.campaign_id)
    with pytest.raises(Conflict, match="take no more verdicts"):
        store.review(row.id, row.content_hash, ReviewStatus.REJECTED, "bob", "", 8.0)
    assert store.reviews(study.campaign_id) == told


def test_an_attempt_queued_before_an_edit_is_not_handed_out(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    run = store.ensure_runs(row.id)[0]
    store.queue_attempt(run.id, 1.0)
    store.replace_blueprint(row.id, row.blueprint.model_copy(update={"notes": "x"}), 2.0)
    assert store.claim_attempt("w", 3.0, 5.0) is None


def test_an_unapproved_blueprint_is_not_queued(study: Any, store: Store) -> None:
    run = store.ensure_runs(study.add(study.blueprint(), approve=False).id)[0]
    with pytest.raises(Conflict, match="not approved"):
        store.queue_attempt(run.id, 1.0)


def test_a_blueprint_that_ran_is_not_edited(study: Any, store: Store) -> None:
    row = study.add(study.blueprint())
    study.claimed(store.ensure_runs(row.id)[0])
    with pytest.raises(Conflict, match="already ran"):
        store.replace_blueprint(row.id, row.blueprint.model_copy(update={"notes": "x"}), 2.0)


def test_runs_are_made_once_a_seed_and_added_for_new_seeds(study: Any, store: Store) -> None:
    row = study.add(study.blueprint(seeds=(1, 2)))
    first = store.ensure_runs(row.id)
    assert store.ensure_runs(row.id) == first == store.runs(study.campaign_id)
    more = row.blueprint.model_copy(update={"seeds": (1, 2, 5)})
    store.replace_blueprint(row.id, more, 2.0)
    assert [run.seed for run in store.ensure_runs(row.id)] == [1, 2, 5]
    with pytest.raises(Conflict, match="seeds \\[5\\]"):
        store.replace_blueprint(row.id, row.blueprint, 3.0)


def test_a_value_that_json_lacks_is_refused_with_a_hint(study: Any, store: Store) -> None:
    with pytest.raises(StoreError, match="finite"):
        store.add_event(study.campaign_id, "a", "k", "s", {"x": float("inf")}, 1.0)
    assert "k" not in study.kinds()
