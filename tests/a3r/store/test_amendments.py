"""Plans are frozen; what is added later stands beside them with its reason, as long as results are not known."""

from pathlib import Path

import pytest

from a3r.core.errors import Conflict, NotFound
from a3r.core.types import StageState
from a3r.report.render import render
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.store.store import Store
from a3r.testing.stored import StoredCampaign, blueprint


@pytest.fixture
def study(tmp_path: Path):
    with Store.open(tmp_path / "a3r.db") as store:
        made = StoredCampaign(store)
        (row,) = made.stage("coarse", [blueprint(4, (1,))])
        made.succeed(store.ensure_runs(row.id)[0].id, 1, 8)
        yield made


def test_an_amendment_leaves_plan_and_hash_and_is_told_in_the_report(
    study: StoredCampaign, tmp_path: Path
):
    stage = study.store.stages(study.id)[0]
    study.store.add_amendment(stage.id, {"seeds": [1]}, "a host | was lost", "ada", 1500.0)
    assert study.store.stages(study.id)[0].plan_hash == stage.plan_hash
    records = study.records()
    text = render(records)
    assert (
        "**Amendment.** 1970-01-01 00:25:00 UTC by ada: seeds [1]. Reason: a host \\| was lost"
        in text
    )
    folder = write_report(records, tmp_path / "r")
    assert verify(folder, study.store).ok
    kinds = [e.kind for e in study.store.events(study.id)]
    assert "plan_amended" in kinds


def test_no_amendment_without_a_reason_after_the_results_or_of_nothing(study: StoredCampaign):
    stage = study.store.stages(study.id)[0]
    with pytest.raises(Conflict, match="needs a reason"):
        study.store.add_amendment(stage.id, {}, "  ", "ada", 1.0)
    study.store.set_stage_state(stage.id, StageState.ANALYSED, {})
    with pytest.raises(Conflict, match="can not be amended"):
        study.store.add_amendment(stage.id, {}, "too late", "ada", 1.0)
    with pytest.raises(NotFound):
        study.store.add_amendment("nowhere", {}, "x", "ada", 1.0)
    assert study.store.amendments(study.id) == []
