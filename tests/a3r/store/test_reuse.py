"""Results of earlier campaigns are offered for the same cell and seed, copied only on demand, and never into a confirmation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from a3r.core.errors import Conflict
from a3r.core.types import AttemptState, ReviewStatus, RunState
from a3r.report.costs import costs
from a3r.report.render import render
from a3r.report.study import Study
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.store.rows import BlueprintRow
from a3r.store.store import Store
from a3r.testing.stored import PLAN, StoredCampaign, blueprint


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "a3r.db") as opened:
        yield opened


@pytest.fixture
def old(store: Store) -> StoredCampaign:
    """Seeds 1 and 2 of level 4 have results; seed 3 has none."""
    made = StoredCampaign(store)
    (row,) = made.stage("coarse", [blueprint(4, (1, 2, 3))])
    for run in store.ensure_runs(row.id)[:2]:
        made.succeed(run.id, run.seed, 8)
    return made


def planned(
    store: Store, kind: str = "coarse", level: int = 4
) -> tuple[StoredCampaign, BlueprintRow]:
    made = StoredCampaign(store)
    (row,) = made.stage(kind, [blueprint(level, (1, 2, 3, 4))])
    return made, row


def test_the_same_cell_and_seed_is_offered_and_nothing_changes_by_it(
    store: Store, old: StoredCampaign
):
    new, row = planned(store)
    offers = store.reusable(new.id)
    assert [(o.seed, o.source_campaign) for o in offers] == [(1, old.id), (2, old.id)]
    assert {o.blueprint_id for o in offers} == {row.id}
    assert store.runs(new.id) == []
    other, _ = planned(store, level=2)
    assert store.reusable(other.id) == []
    assert store.reusable(old.id) == []


def test_a_confirmatory_stage_is_offered_nothing_and_refuses(store: Store, old: StoredCampaign):
    new, row = planned(store, "replicate")
    assert store.reusable(new.id) == []
    run = store.ensure_runs(row.id)[0]
    with pytest.raises(Conflict, match="its stage confirms"):
        store.reuse_run(run.id, store.runs(old.id)[0].id, 5.0)


def test_a_run_that_was_taken_over_is_marked_counted_apart_and_costs_nothing(
    store: Store, old: StoredCampaign, tmp_path: Path
):
    new, row = planned(store)
    first, second = store.ensure_runs(row.id)[:2]
    source = store.reusable(new.id)[0].source_run
    attempt = store.reuse_run(first.id, source, 2000.0)
    assert (attempt.state, attempt.leased_at) == (AttemptState.SUCCEEDED, None)
    new.succeed(second.id, second.seed, 9)
    assert [o.seed for o in store.reusable(new.id)] == []
    records = new.records()
    study = Study(records)
    assert study.reused == {first.id: f"{old.id}/{source}"}
    assert [round(g.gain, 6) for g in study.gains if g.gain is not None] == [0.6, 0.7]
    assert costs(records).attempts == 1
    text = render(records)
    assert "1 of 4 planned runs were not run here" in text
    assert "| succeeded (reused) |" in text
    assert f"reused from {old.id}/{source}: gain +0.600" in text
    folder = write_report(records, tmp_path / "r")
    assert verify(folder, store).level == "equal to the database"


def test_a_result_is_never_passed_on_twice(store: Store, old: StoredCampaign):
    new, row = planned(store)
    (run, *_) = store.ensure_runs(row.id)
    store.reuse_run(run.id, store.reusable(new.id)[0].source_run, 2000.0)
    third, _ = planned(store)
    assert {o.source_campaign for o in store.reusable(third.id)} == {old.id}


@pytest.mark.parametrize("case", ["begun", "other seed", "no result", "not approved"])
def test_what_does_not_fit_is_refused_in_words(store: Store, old: StoredCampaign, case: str):
    new, row = planned(store)
    runs, sources = store.ensure_runs(row.id), store.runs(old.id)
    source = {"other seed": sources[1], "no result": sources[2]}.get(case, sources[0])
    run = runs[0]
    if case == "no result":
        run = runs[2]
    if case == "begun":
        store.queue_attempt(run.id, 3.0)
    if case == "not approved":
        stage = store.add_stage(new.id, "coarse", PLAN, [(blueprint(4, (1,)).model_copy(update={"name": "x"}), "a" * 64)], 9.0)  # fmt: skip
        (late,) = store.blueprints(new.id, stage.id)
        store.review(late.id, late.content_hash, ReviewStatus.APPROVED, "ada", "", 9.0)
        (run,) = store.ensure_runs(late.id)
        store.review(late.id, late.content_hash, ReviewStatus.REJECTED, "ada", "", 9.5)
    with pytest.raises(Conflict, match="takes over no result") as caught:
        store.reuse_run(run.id, source.id, 2000.0)
    assert caught.value.hint
    assert store.run(run.id).state is not RunState.SUCCEEDED
