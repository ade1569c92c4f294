"""A campaign whose approved client does not run: repaired by the language model, disclosed, never at the evaluator's cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from a3r.blueprints.artifact import unpack_tree
from a3r.core.errors import ModelRefused
from a3r.core.types import (
    CampaignState,
    FailureClass,
    JobState,
    ReviewMode,
    ReviewStatus,
    RevisionState,
)
from a3r.leader.clients.files import read_files
from a3r.leader.clients.sourcing import clients_for
from a3r.leader.goal import GoalSpec
from a3r.leader.sweep import SweepPlanner
from a3r.leader.tick import Tick
from a3r.report.verify import verify
from a3r.testing.stand_in.mending import mending
from a3r.testing.stand_in.script import by_task, in_turn, said

pytestmark = pytest.mark.long
NOTHING = {"explanation": "it looks fine to me", "files": [], "removed": []}


def test_a_broken_client_is_repaired_once_and_the_report_shows_the_diff(bench, tmp_path):
    study = bench(mending())
    study.until_quiet()
    assert study.state is CampaignState.DONE, study.store.campaign(study.id).failure
    revisions = study.store.revisions(study.id)
    assert {r.ordinal for r in revisions} == {1}
    assert len({r.artifact_sha for r in revisions}) == 1
    told = [
        d for d in study.store.deviations(study.id) if d.data.get("remedy") == "client_revision"
    ]
    assert len(told) == len(revisions)
    assert "-    return json.loads((HERE" in revisions[0].diff
    assert "+    random.Random(seed).shuffle(order)" in revisions[0].diff
    assert told[0].data["functions"] == ["client.py: training_order", "data/order-0.json"]
    # One question for all blueprints that ran the same client.
    assert len(study.model.asked) == 1
    folder = Path(study.store.campaign(study.id).report_path)
    assert verify(folder).ok
    words = (folder / "report.md").read_text(encoding="utf-8")
    assert "was repaired (revision 1)" in words
    assert "+    random.Random(seed).shuffle(order)" in words
    unpack_tree(study.store.artifact(revisions[0].artifact_sha), tmp_path / "mended")
    assert sorted(read_files(tmp_path / "mended")) == ["client.py"]


def test_a_later_stage_begins_with_the_repaired_client(bench):
    study = bench(mending())
    study.until_quiet()
    first, later = study.store.stages(study.id)[0], study.store.stages(study.id)[-1]
    assert first.id != later.id
    repaired = study.store.revisions(study.id)[0].tree_hash
    blueprints = study.store.blueprints(study.id, later.id)
    assert {b.blueprint.clients[0].tree_hash for b in blueprints} == {repaired}
    assert all(
        a.revision == 0
        for b in blueprints
        for r in study.store.runs(study.id)
        if r.blueprint_id == b.id
        for a in study.store.attempts_of_run(r.id)
    )


def test_under_review_all_the_revision_waits_for_a_person(bench):
    study = bench(mending(), review=ReviewMode.ALL)
    study.until_quiet()
    for row in study.store.blueprints(study.id):
        study.store.review(
            row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "", study.clock.time()
        )
    study.until_quiet()
    assert study.state is CampaignState.AWAITING_REVIEW
    pending = study.store.revisions(study.id)
    assert {r.state for r in pending} == {RevisionState.PENDING}
    assert not [d for d in study.store.deviations(study.id) if "revision" in d.data]
    for row in pending:
        study.store.decide_revision(row.id, RevisionState.APPROVED, "ada", study.clock.time())
    study.until_quiet()
    assert all(
        a.revision == 1 and a.state.value == "succeeded"
        for r in study.store.runs(study.id)
        if (a := study.store.attempts_of_run(r.id)[-1])
    )


def test_a_repair_that_is_not_one_is_given_up_and_the_report_says_what_failed(bench):
    study = bench(by_task({"repair": in_turn(said(NOTHING))}))
    study.until_quiet()
    row = study.store.campaign(study.id)
    assert row.state is CampaignState.DONE
    assert study.store.decisions(study.id)[-1].what == "conclude: no_data"
    assert row.failure.startswith("No run has a result: of 2 planned runs 2 failed. Most often")
    assert "The client was not mended: nothing that was made passed its checks" in row.failure
    assert verify(Path(row.report_path), study.store).ok
    words = (Path(row.report_path) / "report.md").read_text(encoding="utf-8")
    assert "**No run has a result: of 2 planned runs 2 failed**" in words
    assert "FileNotFoundError" in words.split("## ")[1]
    (job,) = (j for j in study.store.jobs(study.id) if j.kind == "repair")
    assert job.state is JobState.FAILED
    assert "not mended after 3 drafts" in job.detail
    assert study.store.revisions(study.id) == []
    assert any(d.what.startswith("no repair") for d in study.store.decisions(study.id))


def test_a_repair_that_comes_when_the_runs_are_over_serves_the_next_stage(bench):
    mend, useless = mending(), [True]

    def without_a_key(request):
        if useless[0]:
            raise ModelRefused("no key")
        return mend(request)

    study = bench(without_a_key)
    study.until_quiet()
    assert study.state is CampaignState.BLOCKED
    goal = GoalSpec.model_validate(study.store.campaign(study.id).goal_spec)
    row = study.store.campaign(study.id)
    tick = Tick(study.store, study.clock, study.workspace, lambda _: SweepPlanner(), row, goal)
    found = clients_for(tick, [goal.task])
    assert found[goal.task].tree_hash == study.worker.broken, "a repair was given up"
    useless[0] = False
    study.store.requeue_jobs(study.id, failed=True)
    study.store.set_campaign_state(study.id, CampaignState.RUNNING)
    assert clients_for(tick, [goal.task]) is None, "it is being repaired"
    study.jobs().run_all()
    found = clients_for(tick, [goal.task])
    (revision,) = {r.tree_hash for r in study.store.revisions(study.id)}
    assert found[goal.task].tree_hash == revision
    assert clients_for(tick, [goal.task]) == found


def test_a_repair_may_not_bring_an_evaluator_or_leave_its_folder(bench):
    bad = [{"path": "evaluation.py", "content": "x = 1"}]
    out = [{"path": "../evaluator/evaluation.py", "content": "x = 1"}]
    answers = (said({**NOTHING, "files": bad}), said({**NOTHING, "files": out}))
    study = bench(by_task({"repair": in_turn(*answers)}))
    study.until_quiet()
    asked = [m.content for m in study.model.asked[-1].messages if m.role == "user"]
    assert any("evaluation.py belongs to the evaluator" in text for text in asked)
    assert any("no file name that a client may have" in text for text in asked)
    assert study.store.revisions(study.id) == []


def test_without_a_language_models_budget_nothing_is_repaired(bench):
    study = bench(mending(), edits={", llm_usd: 1": ""})
    study.until_quiet()
    assert study.state is CampaignState.BLOCKED
    assert study.model.asked == []
    assert not [j for j in study.store.jobs(study.id) if j.kind == "repair"]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FailureClass.DATA_MISSING, "server: it ended with exit code 1"),
        (FailureClass.EVALUATOR_CRASH, "client: the round is incomplete"),
        (FailureClass.NAN, "client: reward_not_finite"),
    ],
)
def test_what_is_not_the_clients_code_is_never_repaired(bench, failure, reason):
    study = bench(mending())
    study.worker.failure, study.worker.reason = failure, reason
    study.until_quiet()
    assert study.model.asked == []
