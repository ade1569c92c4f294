"""Results of earlier campaigns: offered when a stage is planned, taken over only where a person accepted, marked for ever."""

from __future__ import annotations

from a3r.leader.tick import Tick
from a3r.store.rows import OfferRow, RunRow, StageRow

OFFER = "offer results of earlier campaigns"
ACCEPT = "accept results of earlier campaigns"
"""``what`` of a person's consent: for a stage when the decision names one, else for the whole campaign."""


def offer(tick: Tick, stage: StageRow) -> None:
    """Record which planned runs have been run before. Nothing is taken over by it."""
    found = _offers(tick, stage)
    if found:
        why = (
            f"{len(found)} planned runs have a result of the same cell and seed in an earlier campaign; they are run again unless "
            f"a person accepts it before: a3r campaign reuse {tick.id} --accept"
        )
        tick.decide_once(stage.id, OFFER, why, {"offers": [named(o) for o in found]})


def take_over(tick: Tick, stage: StageRow, runs: list[RunRow]) -> bool:
    """Take over what a person accepted for this stage's runs that have not begun; True when something was."""
    if not any(
        d.what == ACCEPT and d.stage_id in (None, stage.id) for d in tick.store.decisions(tick.id)
    ):
        return False
    by_cell = {(r.blueprint_id, r.seed): r for r in runs}
    taken = 0
    for found in _offers(tick, stage):
        run = by_cell.get((found.blueprint_id, found.seed))
        if run is not None:
            tick.store.reuse_run(run.id, found.source_run, tick.now)
            taken += 1
    return taken > 0


def named(found: OfferRow) -> str:
    """``s1-b4 seed 1 from campaign/run``."""
    return f"{found.blueprint} seed {found.seed} from {found.source_campaign}/{found.source_run}"


def _offers(tick: Tick, stage: StageRow) -> list[OfferRow]:
    return [o for o in tick.store.reusable(tick.id) if o.stage_id == stage.id]
