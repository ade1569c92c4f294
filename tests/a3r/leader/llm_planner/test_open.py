"""A scripted planner that thinks it is done, while code still sees something open."""

from __future__ import annotations

from a3r.core.types import CampaignState
from a3r.report.verify import verify
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.planner_script import careful_planner


def noisy_at_four(factors, seed) -> float:
    """Level 4 gains a lot on the average and too unevenly to be shown; from 8 on the gain is plain."""
    level = factors["train_batch_size"]
    if level < 4:
        return 0.0
    return 0.4 if level > 4 or seed % 2 else 0.05


def test_what_code_sees_as_open_is_run_before_the_campaign_ends(new_rig, goal):
    rig = new_rig(ScriptedModel(careful_planner()), truth=noisy_at_four)
    campaign = rig.start(goal)
    rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    assert [s.kind for s in rig.store.stages(campaign)].count("replicate") == 2
    assert verify(rig.report(campaign), rig.store).ok
