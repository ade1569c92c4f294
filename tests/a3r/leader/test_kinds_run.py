"""Campaigns of the other kinds of questions, from their goal to a report that verifies."""

from __future__ import annotations

import pytest

from a3r.core.types import CampaignState
from a3r.report.export import records_from_store
from a3r.report.verify import verify
from tests.a3r.leader.kinds import TOLD, goal_of, rloo_gains_more
from tests.a3r.leader.rig import Rig


class ByAlgorithm(Rig):
    """Its worker measures what ``rloo_gains_more`` says."""

    def truth(self, factors, seed) -> float | None:
        return rloo_gains_more(factors, seed)


@pytest.mark.parametrize("kind", TOLD)
def test_a_campaign_of_each_kind_runs_to_a_report_that_verifies(tmp_path, kind):
    rig = ByAlgorithm(tmp_path, goal_of(kind))
    campaign = rig.start(kind)
    rig.until_quiet()
    row = rig.store.campaign(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    folder = rig.workspace.project / "reports" / campaign
    assert verify(folder, rig.store).ok
    assert TOLD[kind] in (folder / "report.md").read_text(encoding="utf-8")
    records = records_from_store(rig.store, campaign)
    assert [s.kind for s in records.stages] == ["coarse", "replicate"]
    rig.close()
