"""A planned stage waits here until every one of its blueprints has a verdict. Silence is never consent."""

from __future__ import annotations

from a3r.core.types import CampaignState, ReviewMode, ReviewStatus, StageState
from a3r.leader.tick import Tick
from a3r.store.rows import BlueprintRow, StageRow

NOBODY = "review-mode-none"
"""Who approved when the campaign was started without review."""
DECIDED = frozenset({ReviewStatus.APPROVED, ReviewStatus.REJECTED})


def pass_review(tick: Tick, stage: StageRow) -> bool:
    """Let the stage run once all its blueprints are approved or rejected; a stage without an approved one is abandoned."""
    blueprints = tick.store.blueprints(tick.id, stage.id)
    changed = False
    if tick.campaign.review_mode is ReviewMode.NONE:
        changed = _approve_unasked(tick, blueprints)
        blueprints = tick.store.blueprints(tick.id, stage.id) if changed else blueprints
    if any(b.review not in DECIDED for b in blueprints):
        return tick.enter(CampaignState.AWAITING_REVIEW) or changed
    if all(b.review is ReviewStatus.REJECTED for b in blueprints):
        return _abandon(tick, stage)
    tick.store.set_stage_state(stage.id, StageState.RUNNING)
    tick.enter(CampaignState.RUNNING)
    return True


def _approve_unasked(tick: Tick, blueprints: list[BlueprintRow]) -> bool:
    pending = [b for b in blueprints if b.review is ReviewStatus.PENDING]
    for blueprint in pending:
        tick.store.review(
            blueprint.id,
            blueprint.content_hash,
            ReviewStatus.APPROVED,
            NOBODY,
            "the campaign was started without review",
            tick.now,
        )
    return bool(pending)


def _abandon(tick: Tick, stage: StageRow) -> bool:
    tick.decide_once(
        stage.id,
        f"abandon stage {stage.ordinal}: {stage.kind}",
        "A person rejected every blueprint of this stage, so none of it was run.",
        {},
    )
    tick.store.set_stage_state(stage.id, StageState.ABANDONED)
    return True
