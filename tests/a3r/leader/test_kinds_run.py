"""Campaigns of the other kinds of questions, from their goal to a report that verifies."""

from __future__ import annotations

import pytest

from a3r.core.types import CampaignState
from a3r.report.export import records_from_store
from a3r.report.verify import verify
from tests.a3r.leader.rig import Rig

GOAL = """---
name: {kind}
question: {{kind: {kind}, factor: algorithm.name{across}}}
task: calculator
model: builtin:tiny-calc
factors:
  algorithm.name: {{levels: [grpo, rloo]}}
{more}
metric: {{name: held_out_reward, items: 40}}
settings: {{steps: 2, group_size: 2, train_batch_size: 2}}
seeds: {{coarse: 2, refine: 2, replicate: 4}}
smallest_effect: 0.05
evaluations: [1]
review: none
pilot: none
---
"""
ACROSS = ", across: max_response_tokens"
SECOND = "  max_response_tokens: {levels: [10, 16]}"


class ByAlgorithm(Rig):
    """rloo gains more, and more so with longer answers."""

    def truth(self, factors, seed) -> float | None:
        if factors["algorithm.name"] == "grpo":
            return 0.1
        return 0.5 if factors.get("max_response_tokens", 16) == 16 else 0.2


@pytest.mark.parametrize(
    ("kind", "across", "more", "told"),
    [
        ("best", "", "", "The best algorithm.name of those repeated on fresh seeds is rloo"),
        ("comparison", "", "", "Of algorithm.name, rloo is shown above grpo"),
        ("interaction", ACROSS, SECOND, "The effect of algorithm.name rloo instead of grpo"),
    ],
)
def test_a_campaign_of_each_kind_runs_to_a_report_that_verifies(tmp_path, kind, across, more, told):
    rig = ByAlgorithm(tmp_path, GOAL.format(kind=kind, across=across, more=more))
    campaign = rig.start(kind)
    rig.until_quiet()
    row = rig.store.campaign(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    folder = rig.workspace.project / "reports" / campaign
    assert verify(folder, rig.store).ok
    assert told in (folder / "report.md").read_text(encoding="utf-8")
    records = records_from_store(rig.store, campaign)
    assert [s.kind for s in records.stages] == ["coarse", "replicate"]
