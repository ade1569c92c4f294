"""Events as a person reads them: the store's lines with the names and sums that they only point at."""

from __future__ import annotations

from typing import Any

from a3r.hub.views import gain, stop_at_step
from a3r.store.rows import BlueprintRow, EventRow
from a3r.store.store import Store

Json = dict[str, Any]


def event_lines(store: Store, campaign_id: str, events: list[EventRow]) -> list[Json]:
    """Each event as JSON, with ``label`` where it concerns a run and ``more`` where its kind deserves it."""
    if not events:
        return []
    names = {row.id: row for row in store.blueprints(campaign_id)}
    return [_event_line(store, event, names) for event in events]


def _event_line(store: Store, event: EventRow, names: dict[str, BlueprintRow]) -> Json:
    body = event.model_dump(mode="json")
    if event.attempt_id is not None:
        body["more"] = _of_attempt(store, event.attempt_id, event.kind, names)
    elif event.kind.startswith("run_"):
        run = store.run(event.subject)
        body["more"] = {"label": f"{names[run.blueprint_id].name} seed {run.seed}", "run": run.id}
    elif event.kind.startswith("stage_"):
        body["more"] = _of_stage(store, event)
    return body


def _of_attempt(store: Store, attempt_id: str, kind: str, names: dict[str, BlueprintRow]) -> Json:
    attempt = store.attempt(attempt_id)
    run = store.run(attempt.run_id)
    row = names[run.blueprint_id]
    return {
        "label": f"{row.name} seed {run.seed}",
        "run": run.id,
        "ordinal": attempt.ordinal,
        "stop_at_step": stop_at_step(row),
        "gain": gain(store.eval_rounds(attempt_id)) if kind == "attempt_succeeded" else None,
    }


def _of_stage(store: Store, event: EventRow) -> Json:
    stage = next((s for s in store.stages(event.campaign_id) if s.id == event.subject), None)
    if stage is None:
        return {}
    blueprints = store.blueprints(event.campaign_id, stage.id)
    return {
        "ordinal": stage.ordinal,
        "kind": stage.kind,
        "question": stage.plan.get("question", ""),
        "blueprints": len(blueprints),
        "runs": sum(len(row.blueprint.seeds) for row in blueprints),
    }
