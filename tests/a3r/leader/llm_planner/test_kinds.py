"""Campaigns of the other kinds of questions, planned by a model from their goal to a report that verifies."""

from __future__ import annotations

import pytest

from a3r.core.types import CampaignState
from a3r.report.verify import verify
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.planner_script import careful_planner
from tests.a3r.leader.kinds import TOLD, goal_of, rloo_gains_more


@pytest.mark.parametrize("kind", TOLD)
def test_a_model_plans_a_campaign_of_each_kind(new_rig, kind):
    rig = new_rig(ScriptedModel(careful_planner()), truth=rloo_gains_more)
    campaign = rig.start(goal_of(kind, planner="llm"))
    rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    assert [s.kind for s in rig.store.stages(campaign)] == ["explore", "replicate"]
    assert verify(rig.report(campaign), rig.store).ok
    assert TOLD[kind] in (rig.report(campaign) / "report.md").read_text(encoding="utf-8")
