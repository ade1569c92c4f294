"""A repair after some seeds of a blueprint had succeeded: they are run again, so that a cell has one client."""

from __future__ import annotations

from pathlib import Path

import pytest

from a3r.core.errors import Conflict, ModelRefused
from a3r.core.types import CampaignState, RunState
from a3r.report.export import records_from_store
from a3r.report.gains import run_gains
from a3r.report.question import question_of
from a3r.report.verify import verify
from a3r.store.retrying import RENEWED
from a3r.testing.stand_in.mending import mending

pytestmark = pytest.mark.long


def test_runs_that_succeeded_before_a_repair_are_run_again_with_the_repaired_client(bench):
    study = bench(mending(), edits={"coarse: 1": "coarse: 2"})
    study.worker.passes = frozenset({1})
    study.until_quiet()
    assert study.state is CampaignState.DONE, study.store.campaign(study.id).failure
    first = study.store.blueprints(study.id, study.store.stages(study.id)[0].id)
    runs = [r for r in study.store.runs(study.id) if r.blueprint_id in {b.id for b in first}]
    assert {r.state for r in runs} == {RunState.SUCCEEDED}
    assert {study.store.attempt(r.accepted_attempt).revision for r in runs} == {1}
    renewed = [d for d in study.store.deviations(study.id) if d.data.get("remedy") == RENEWED]
    assert len(renewed) == len(first), "seed 1 of each blueprint, once"
    folder = Path(study.store.campaign(study.id).report_path)
    assert verify(folder, study.store).ok
    assert "a cell's results come from one client" in (folder / "report.md").read_text("utf-8")
    for run in runs:
        with pytest.raises(Conflict, match="no result of an earlier revision"):
            study.store.renew_run(run.id, study.clock.time())


def test_without_budget_the_earlier_results_are_set_aside_and_none_is_lost(bench):
    study = bench(mending(), edits={"coarse: 1": "coarse: 2"})
    study.worker.passes = frozenset({1})
    finish = study.worker.finish

    def last_before_the_end(attempt):
        finish(attempt)
        if all(r.state is RunState.SUCCEEDED for r in study.store.runs(study.id)):
            study.clock.at += 3600.0

    study.worker.finish = last_before_the_end
    study.until_quiet()
    records = records_from_store(study.store, study.id)
    gains = run_gains(records, question_of(records.campaign.goal_spec))
    before = [g for g in gains if g.seed == 1]
    assert len(before) == 2
    assert all(g.state == "succeeded" and "earlier revision" in g.excluded for g in before)
    assert all(g.gain is not None for g in gains if g.seed == 2)


def test_a_repair_that_a_resume_asked_for_lets_the_runs_that_had_failed_go_on(bench):
    mend, no_key = mending(), [True]

    def later(request):
        if no_key[0]:
            raise ModelRefused("no key")
        return mend(request)

    study = bench(later)
    study.until_quiet()
    assert study.state is CampaignState.BLOCKED
    no_key[0] = False
    study.store.requeue_jobs(study.id, failed=True)
    study.store.set_campaign_state(study.id, CampaignState.RUNNING)
    study.until_quiet()
    assert study.state is CampaignState.DONE
    first = study.store.stages(study.id)[0]
    ids = {b.id for b in study.store.blueprints(study.id, first.id)}
    runs = [r for r in study.store.runs(study.id) if r.blueprint_id in ids]
    assert {r.state for r in runs} == {RunState.SUCCEEDED}
    assert verify(Path(study.store.campaign(study.id).report_path), study.store).ok
