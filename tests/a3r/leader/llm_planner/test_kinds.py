"""Campaigns of the other kinds of questions, planned by a model from their goal to a report that verifies."""

from __future__ import annotations

import pytest

from a3r.core.types import CampaignState
from a3r.report.verify import verify
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.planner_script import careful_planner

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
planner: llm
review: none
pilot: none
---
Prose.
"""
ACROSS = ", across: max_response_tokens"
SECOND = "  max_response_tokens: {levels: [10, 16]}"


def rloo_gains_more(factors, _seed) -> float:
    """And more so with longer answers."""
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
def test_a_model_plans_a_campaign_of_each_kind(new_rig, kind, across, more, told):
    rig = new_rig(ScriptedModel(careful_planner()), truth=rloo_gains_more)
    campaign = rig.start(GOAL.format(kind=kind, across=across, more=more))
    rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.DONE, None)
    assert [s.kind for s in rig.store.stages(campaign)] == ["explore", "replicate"]
    assert verify(rig.report(campaign), rig.store).ok
    assert told in (rig.report(campaign) / "report.md").read_text(encoding="utf-8")
