"""Rows of the store as the command line sees them: plain JSON, with the small sums that a screen needs.

Nothing here decides anything: claims and decisions are computed elsewhere, from the records.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import Any

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, ReviewStatus, RevisionState
from a3r.core.wire import EvalRound
from a3r.hub import jobs
from a3r.store.campaigns import FINAL
from a3r.store.rows import AttemptRow, BlueprintRow, CampaignRow, RunRow, StageRow
from a3r.store.store import Store

Json = dict[str, Any]


def campaign_line(store: Store, row: CampaignRow) -> Json:
    """One campaign in a list."""
    runs = store.runs(row.id)
    stages = store.stages(row.id)
    body = row.model_dump(mode="json", exclude={"goal_text", "goal_spec"})
    return {
        **body,
        "stage": stages[-1].ordinal if stages else 0,
        "runs": dict(Counter(run.state.value for run in runs)),
        "awaiting_review": len(awaiting_review(store, row.id))
        + len(pending_revisions(store, row.id)),
        "blocked_attempts": blocked_attempts(store, row.id),
        "jobs": [] if row.state in FINAL else jobs.open_jobs(store, row.id),
        "llm": jobs.llm_costs(store, row),
    }


def blocked_attempts(store: Store, campaign_id: str) -> list[Json]:
    """Attempts that wait for a person (out of credit, a full disk): ``label``, ``run`` and ``why``."""
    found = [
        a
        for a in store.held_attempts()
        if a.campaign_id == campaign_id and a.state is AttemptState.BLOCKED
    ]
    names = {b.id: b.name for b in store.blueprints(campaign_id)} if found else {}
    runs = [(store.run(a.run_id), a.detail) for a in found]
    return [
        {"label": f"{names[run.blueprint_id]} seed {run.seed}", "run": run.id, "why": why}
        for run, why in runs
    ]


def campaign_view(store: Store, row: CampaignRow) -> Json:
    """One campaign in full, without its runs."""
    return {
        **campaign_line(store, row),
        "goal_spec": row.goal_spec,
        "stages": [_stage(store, stage) for stage in store.stages(row.id)],
        "decisions": [d.model_dump(mode="json") for d in store.decisions(row.id)],
        "deviations": [d.model_dump(mode="json") for d in store.deviations(row.id)],
        "to_review": [b.name for b in awaiting_review(store, row.id)],
        "revisions_to_review": pending_revisions(store, row.id),
    }


def _stage(store: Store, stage: StageRow) -> Json:
    blueprints = store.blueprints(stage.campaign_id, stage.id)
    ids = {row.id for row in blueprints}
    runs = [run for run in store.runs(stage.campaign_id) if run.blueprint_id in ids]
    return {
        **stage.model_dump(mode="json"),
        "blueprints": [row.name for row in blueprints],
        "planned_runs": sum(len(row.blueprint.seeds) for row in blueprints),
        "runs": dict(Counter(run.state.value for run in runs)),
    }


def awaiting_review(store: Store, campaign_id: str) -> list[BlueprintRow]:
    """Blueprints that nobody has decided on, of a campaign that asks for a review."""
    campaign = store.campaign(campaign_id)
    if campaign.review_mode.value == "none":
        return []
    return [b for b in store.blueprints(campaign_id) if b.review is ReviewStatus.PENDING]


def pending_revisions(store: Store, campaign_id: str) -> list[Json]:
    """Repaired clients that wait for a person: which blueprint's, which revision, why."""
    found = [r for r in store.revisions(campaign_id) if r.state is RevisionState.PENDING]
    names = {b.id: b.name for b in store.blueprints(campaign_id)} if found else {}
    return [
        {"blueprint": names[r.blueprint_id], "revision": r.ordinal, "reason": r.reason}
        for r in found
    ]


def blueprint_line(row: BlueprintRow) -> Json:
    """One blueprint in a list."""
    body = row.model_dump(mode="json", exclude={"blueprint"})
    return {
        **body,
        "purpose": row.blueprint.purpose,
        "factors": row.blueprint.factors,
        "seeds": list(row.blueprint.seeds),
    }


def blueprint_view(store: Store, row: BlueprintRow) -> Json:
    """One blueprint in full, with its reviews."""
    reviews = [r for r in store.reviews(row.campaign_id) if r.blueprint_id == row.id]
    return {
        **row.model_dump(mode="json"),
        "reviews": [r.model_dump(mode="json") for r in reviews],
    }


def run_line(store: Store, run: RunRow, names: dict[str, BlueprintRow]) -> Json:
    """One run in a list, with the attempt that counts (accepted, else the latest)."""
    row = names[run.blueprint_id]
    attempts = store.attempts_of_run(run.id)
    shown = chosen_attempt(run, attempts)
    return {
        **run.model_dump(mode="json"),
        "label": f"{row.name} seed {run.seed}",
        "factors": row.blueprint.factors,
        "stop_at_step": stop_at_step(row),
        "attempts": len(attempts),
        "attempt_state": shown.state.value if shown else None,
        "step": shown.step if shown else None,
        "detail": shown.detail if shown else "",
        "gain": gain(store.eval_rounds(shown.id)) if shown else None,
    }


def run_view(store: Store, run: RunRow) -> Json:
    """One run in full: attempts with reasons, events, rounds and logs."""
    row = store.blueprint(run.blueprint_id)
    attempts = [_attempt(store, attempt) for attempt in store.attempts_of_run(run.id)]
    return {
        **run_line(store, run, {row.id: row}),
        "campaign": store.campaign(run.campaign_id).id,
        "blueprint": row.name,
        "attempts": attempts,
    }


def chosen_attempt(run: RunRow, attempts: list[AttemptRow]) -> AttemptRow | None:
    """Return the accepted attempt, else the latest; None when there is none."""
    accepted = [a for a in attempts if a.id == run.accepted_attempt]
    return (accepted or attempts or [None])[-1]


def stop_at_step(row: BlueprintRow) -> int | None:
    """Steps that the first server trains."""
    return row.blueprint.servers[0].train.stop_at_step if row.blueprint.servers else None


def _attempt(store: Store, attempt: AttemptRow) -> Json:
    rounds = store.eval_rounds(attempt.id)
    events = [
        e for e in store.events(attempt.campaign_id, 0, 100_000) if e.attempt_id == attempt.id
    ]
    steps = store.steps(attempt.id)
    return {
        # The nonce and the fencing token are the worker's own.
        **attempt.model_dump(mode="json", exclude={"nonce", "fencing_token"}),
        "live": attempt.state not in TERMINAL_ATTEMPTS,
        "steps": len(steps),
        "last_step": steps[-1] if steps else None,
        "rounds": [round_line(r) for r in rounds],
        "gain": gain(rounds),
        "events": [e.model_dump(mode="json") for e in events],
        "logs": log_sizes(store, attempt.id),
    }


def round_line(one: EvalRound) -> Json:
    """One evaluation round without its items. ``mean`` is None when an item is missing or none was planned."""
    rewards = [item.reward for item in one.items if item.reward is not None]
    complete = len(rewards) == one.planned and one.planned > 0
    return {
        "name": one.name,
        "step": one.step,
        "policy_version": one.policy_version,
        "planned": one.planned,
        "scored": len(rewards),
        "mean": fmean(rewards) if complete else None,
    }


def gain(rounds: list[EvalRound]) -> float | None:
    """Held-out mean of the final round minus that of the initial one; None while either is missing or incomplete."""
    means = {one.name: round_line(one)["mean"] for one in rounds}
    first, last = means.get("initial"), means.get("final")
    return None if first is None or last is None else last - first


def log_sizes(store: Store, attempt_id: str) -> dict[str, int]:
    """Log name -> bytes that have arrived here."""
    names = store.log_names(attempt_id)
    return {name: store.log_path(attempt_id, name).stat().st_size for name in names}
