"""No stage is open: ask the planner what comes next, write down why, and add the stage or go to the conclusion."""

from __future__ import annotations

from a3r.core.types import CampaignState
from a3r.leader.clients.remedy import awaits_person
from a3r.leader.clients.sourcing import clients_for
from a3r.leader.experiment import build_blueprints, tasks_of
from a3r.leader.findings import look_up
from a3r.leader.plan import Conclusion, EndReason, Pending, StagePlan
from a3r.leader.reuse import offer
from a3r.leader.tick import Tick
from a3r.report.no_result import no_result, no_result_text


def plan_next(tick: Tick) -> bool:
    """Plan the next stage or conclude. Repeats to the same rows: the planner is a pure function of what is recorded."""
    if tick.wall_clock_is_up():
        return end_with(tick, "wall_clock")
    if tick.gpu_hours_are_up():
        return end_with(tick, "gpu_hours")
    if not tick.store.stages(tick.id):
        look_up(tick)
    outcome = tick.planner.next(tick.goal, tick.records())
    if isinstance(outcome, Conclusion):
        return _conclude(tick, outcome)
    if isinstance(outcome, Pending):
        return False
    return _add_stage(tick, outcome)


def end_with(tick: Tick, reason: EndReason) -> bool:
    """Conclude now, with what is there."""
    return _conclude(tick, tick.planner.conclude(tick.goal, tick.records(), reason))


def _conclude(tick: Tick, conclusion: Conclusion) -> bool:
    stages = tick.store.stages(tick.id)
    evidence = {
        "reason": conclusion.reason,
        "verdicts": [v.model_dump(mode="json") for v in conclusion.verdicts],
        **conclusion.evidence,
    }
    tick.decide_once(
        stages[-1].id if stages else None,
        f"conclude: {conclusion.reason}",
        conclusion.text,
        evidence,
    )
    told = no_result(tick.records()) if conclusion.reason == "no_data" else None
    failure = tick.campaign.failure if told is None else no_result_text(told)
    return tick.enter(CampaignState.CONCLUDING, failure=failure)


def _add_stage(tick: Tick, plan: StagePlan) -> bool:
    clients = clients_for(tick, tasks_of(tick.goal, plan))
    if clients is None:
        return awaits_person(tick) and tick.enter(CampaignState.AWAITING_REVIEW)
    stages = tick.store.stages(tick.id)
    number = len(stages) + 1
    tick.enter(CampaignState.PLANNING)
    tick.decide_once(
        stages[-1].id if stages else None,
        f"plan stage {number}: {plan.kind}",
        plan.why,
        plan.evidence,
    )
    shas = {c.tree_hash: tick.store.put_artifact(c.data) for c in clients.values()}
    blueprints = build_blueprints(tick.goal, plan, number, clients, tick.goal_dir)
    stage = tick.store.add_stage(
        tick.id,
        plan.kind,
        plan.model_dump(mode="json"),
        [(b, shas[b.clients[0].tree_hash]) for b in blueprints],
        tick.now,
    )
    offer(tick, stage)
    return True
