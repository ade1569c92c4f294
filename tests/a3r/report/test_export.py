"""Records from a real database, and verification against it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from a3r.core.types import CampaignState
from a3r.core.wire import EventReport
from a3r.report.analysis import minimum
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.store.store import Store
from a3r.testing.edits import with_item
from a3r.testing.stored import StoredCampaign, blueprint, eval_round


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / ".a3r").mkdir()
    with Store.open(tmp_path / ".a3r" / "a3r.db") as opened:
        yield opened


@pytest.fixture
def campaign(store: Store) -> StoredCampaign:
    made = StoredCampaign(store)
    (row,) = made.stage("coarse", [blueprint(4, (1, 2))])
    for run, right in zip(store.ensure_runs(row.id), (8, 9), strict=True):
        made.succeed(run.id, run.seed, right)
    store.add_decision(made.id, None, "conclude: answered", "enough", {"n": 2}, 1020.0)
    return made


def test_export_holds_what_the_analysis_needs(campaign: StoredCampaign):
    records = campaign.records()
    cell = minimum(records).conditions[0].cells[0]
    assert [round(g.gain, 6) for g in cell.gains] == [0.6, 0.7]
    assert records.campaign.ending == "concluded"
    assert [s.step for s in records.steps] == [1, 2, 1, 2]
    assert records.reviews[0].by == "ada"
    assert records.campaign.environment["worker 1"] == {"slots": 2, "cpus": 2}
    assert "python" in records.campaign.environment["software"]


def test_report_of_the_database_is_proven_equal_to_it(campaign: StoredCampaign, tmp_path: Path):
    folder = write_report(campaign.records(), tmp_path / "reports" / "r")
    report = verify(folder, campaign.store)
    assert report.ok, report.checks[-1]
    assert report.level == "equal to the database"


def test_what_happens_after_the_report_does_not_make_it_differ(
    campaign: StoredCampaign, tmp_path: Path
):
    folder = write_report(campaign.records(), tmp_path / "r")
    campaign.store.set_campaign_state(campaign.id, CampaignState.DONE, report_path=str(folder))
    campaign.store.add_decision(campaign.id, None, "later", "x", {}, 2000.0)
    campaign.store.add_deviation(campaign.id, "later", {}, 2000.0)
    campaign.store.upsert_worker("w2", "other", 1, 2, {}, 2000.0)
    assert verify(folder, campaign.store).level == "equal to the database"


def test_consistently_forged_report_differs_from_the_database(
    campaign: StoredCampaign, tmp_path: Path
):
    forged = with_item(campaign.records(), 1, 9, reward=1.0)
    folder = write_report(forged, tmp_path / "r")
    assert verify(folder).level == "self-consistent"
    report = verify(folder, campaign.store)
    assert report.level == "nothing"
    assert report.checks[-1].name == "records equal the database"
    assert "items.csv: line" in report.checks[-1].detail


def test_report_of_another_database_is_told(campaign: StoredCampaign, tmp_path: Path):
    folder = write_report(campaign.records(), tmp_path / "r")
    (tmp_path / "elsewhere").mkdir()
    with Store.open(tmp_path / "elsewhere" / "a3r.db") as other:
        report = verify(folder, other)
    assert report.checks[-1].name == "records equal the database"
    assert not report.ok


def test_failed_runs_keep_their_class_and_reason_without_machine_paths(
    campaign: StoredCampaign, tmp_path: Path
):
    (row,) = campaign.stage("replicate", [blueprint(2, (3,))])
    (run,) = campaign.store.ensure_runs(row.id)
    attempt = campaign.attempt(run.id)
    reason = f"no room in {tmp_path}/.a3r/runs \x1b[31mred"
    long = EventReport(seq=0, at=1.0, actor="worker", kind="log", data={"big": ["x" * 50] * 200})
    campaign.store.add_events(attempt.id, attempt.fencing_token, [long])
    campaign.store.finish_attempt(
        attempt.id, attempt.fencing_token, "failed", None, reason, {}, 1011.0
    )
    records = campaign.records()
    found = records.run(run.id).attempts[0]
    assert found.reason == "no room in <project>/.a3r/runs [31mred"
    assert str(tmp_path) not in records.model_dump_json()
    told = next(e for e in records.events if e.kind == "log")
    assert told.data["big"].startswith("left out:")
    assert verify(write_report(records, tmp_path / "r"), campaign.store).ok


def test_evidence_of_a_failed_attempt_stays_out_of_the_results(campaign: StoredCampaign):
    (row,) = campaign.stage("replicate", [blueprint(2, (3,))])
    (run,) = campaign.store.ensure_runs(row.id)
    attempt = campaign.attempt(run.id)
    token = attempt.fencing_token
    campaign.store.add_steps(attempt.id, token, [{"step": 1}])
    campaign.store.add_eval_round(attempt.id, token, eval_round(token, "initial", 10))
    campaign.store.finish_attempt(attempt.id, token, "failed", None, "crash", {}, 1011.0)
    records = campaign.records()
    assert [e for e in records.evals if e.run_id == run.id] == []
    assert records.steps_of(run.id) == []


def test_folders_of_people_and_scratch_folders_of_any_host_are_not_told(
    campaign: StoredCampaign,
) -> None:
    (row,) = campaign.stage("replicate", [blueprint(2, (3,))])
    (run,) = campaign.store.ensure_runs(row.id)
    attempt = campaign.attempt(run.id)
    # Written in parts: no file here may hold what looks like somebody's folder.
    home, other, root = "/home" + "/ada", "/Users" + "/bob", "/root"
    reason = f"{home}/x '{other}/y' {root}/z, /tmp/made-up/q http://hub/tmp/a {root}ed /home"
    campaign.store.finish_attempt(
        attempt.id, attempt.fencing_token, "failed", None, reason, {}, 1011.0
    )
    found = campaign.records().run(run.id).attempts[0].reason
    assert found == "~/x '~/y' ~/z, <tmp>/made-up/q http://hub/tmp/a /rooted /home"
