"""The leader's loop body: for each campaign, compare what is wanted with what is there and take the missing steps.

Level-triggered: everything is read from the store, nothing is remembered, and every action is one small transaction that a
repeat does not double. So it may be killed at any line, run late, or run twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from a3r.core.errors import Conflict, JobFailed, StoreError
from a3r.core.ports import Clock
from a3r.core.types import CampaignState, StageState
from a3r.core.workspace import Workspace
from a3r.leader.concluding import conclude
from a3r.leader.dispatch import run_stage
from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.planner import LlmPlanner
from a3r.leader.plan import Planner
from a3r.leader.planning import plan_next
from a3r.leader.review_gate import pass_review
from a3r.leader.stopping import wind_down
from a3r.leader.sweep import SweepPlanner
from a3r.leader.tick import Tick
from a3r.leader.understanding.adopting import adopt
from a3r.store.rows import CampaignRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)

FINAL = frozenset({CampaignState.DONE, CampaignState.STOPPED})
HELD = frozenset({CampaignState.PAUSED, CampaignState.BLOCKED})
MAX_STEPS = 25
"""Of one campaign in one call: planning to dispatch needs about five. The rest waits for the next tick."""
MAX_CONFLICTS = 5
"""In a row; more are no coincidence, and the campaign is blocked."""
PLANNERS: dict[str, Callable[[Tick], Planner]] = {
    "sweep": lambda _: SweepPlanner(),
    "llm": LlmPlanner,
}


def reconcile(store: Store, clock: Clock, workspace: Workspace) -> bool:
    """Take every campaign as far as it goes without waiting; True when something was written. Safe to repeat."""
    changed = False
    for campaign in store.campaigns():
        if campaign.state not in FINAL:
            changed |= _guarded(store, clock, workspace, campaign)
    return changed


def _guarded(store: Store, clock: Clock, workspace: Workspace, campaign: CampaignRow) -> bool:
    """The one exception boundary: a campaign that fails is blocked with the reason, the others go on."""
    try:
        return _advance(store, clock, workspace, campaign.id)
    except StoreError as error:
        # The database itself is in trouble (locked, disk full): nothing can be written now, so try again next time.
        logger.warning("campaign %s waits for the database: %s", campaign.id, error)
        return False
    except JobFailed as error:
        return _block(store, campaign.id, str(error))
    except Exception as error:
        logger.exception("campaign %s is blocked by an unexpected error", campaign.id)
        return _block(store, campaign.id, f"{type(error).__name__}: {error}")


def _block(store: Store, campaign_id: str, failure: str) -> bool:
    try:
        store.set_campaign_state(campaign_id, CampaignState.BLOCKED, failure=failure)
    except (StoreError, Conflict) as error:
        logger.warning("campaign %s could not be marked as blocked: %s", campaign_id, error)
        return False
    return True


def _advance(store: Store, clock: Clock, workspace: Workspace, campaign_id: str) -> bool:
    changed, conflicts = False, 0
    for _ in range(MAX_STEPS):
        campaign = store.campaign(campaign_id)
        try:
            if not _step(store, clock, workspace, campaign):
                break
        except Conflict:
            # Somebody (a reviewer, a worker) wrote between our read and our write: look again.
            conflicts += 1
            if conflicts > MAX_CONFLICTS:
                raise
        else:
            conflicts = 0
        changed = True
    return changed


def _step(store: Store, clock: Clock, workspace: Workspace, campaign: CampaignRow) -> bool:
    stopping = campaign.stop_requested_at is not None
    if campaign.state in FINAL or (campaign.state in HELD and not stopping):
        return False
    if not campaign.goal_spec:
        return _unread(store, clock, campaign, stopping=stopping)
    goal = GoalSpec.model_validate(campaign.goal_spec)
    tick = Tick(store, clock, workspace, PLANNERS[campaign.planner], campaign, goal)
    if campaign.state is CampaignState.CONCLUDING:
        return conclude(tick)
    if stopping:
        return wind_down(tick)
    stage = tick.open_stage()
    if stage is None:
        return plan_next(tick)
    if stage.state is StageState.PLANNED:
        return pass_review(tick, stage)
    return run_stage(tick, stage)


def _unread(store: Store, clock: Clock, campaign: CampaignRow, *, stopping: bool) -> bool:
    """A goal in prose that nobody has understood yet: nothing was run, so a stop needs no report."""
    if not stopping:
        return adopt(store, clock, campaign)
    store.set_campaign_state(campaign.id, CampaignState.STOPPED, failure=campaign.failure)
    return True
