"""``/api/v1/runs``: one run in full, and ranges of its logs."""

from __future__ import annotations

import base64
from difflib import get_close_matches
from typing import Annotated, Any

from fastapi import APIRouter, Query

from a3r.core.errors import Conflict, NotFound
from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    TERMINAL_RUNS,
    AttemptState,
    CampaignState,
    RunState,
)
from a3r.hub import views
from a3r.hub.state import Hub
from a3r.store.rows import AttemptRow, RunRow
from a3r.store.store import Store

Json = dict[str, Any]

LOG_LIMIT = 1 << 20


def add_runs(router: APIRouter, hub: Hub) -> None:
    """Add the run routes to ``router``."""
    store = hub.store

    @router.get("/runs/{run_id}")
    def show(run_id: str) -> Json:
        """One run with its attempts."""
        return views.run_view(store, find_run(store, run_id))

    add_run_steering(router, hub)

    @router.get("/runs/{run_id}/logs")
    def logs(
        run_id: str,
        name: str = "client",
        attempt: Annotated[
            int | None, Query(ge=1, description="Its ordinal; None = latest.")
        ] = None,
        offset: Annotated[int, Query(description="Negative: from the end.")] = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_LIMIT)] = 65536,
    ) -> Json:
        """Raw bytes of one log (base64) from ``offset``; ``ended`` = nothing more will come."""
        chosen = _attempt(hub, find_run(store, run_id), attempt)
        sizes = views.log_sizes(store, chosen.id)
        size = sizes.get(name, 0)
        if name not in sizes and chosen.state in TERMINAL_ATTEMPTS:
            known = ", ".join(sizes) or "none"
            raise NotFound(
                f"Attempt {chosen.ordinal} of this run has no log {name!r}.",
                hint=f"Its logs: {known}.",
            )
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        data = store.read_log(chosen.id, name, start, limit) if size > start else b""
        return {
            "attempt": chosen.ordinal,
            "attempt_id": chosen.id,
            "name": name,
            "offset": start,
            "next_offset": start + len(data),
            "size": size,
            "ended": chosen.state in TERMINAL_ATTEMPTS and start + len(data) >= size,
            "data_b64": base64.b64encode(data).decode(),
        }


def add_run_steering(router: APIRouter, hub: Hub) -> None:
    """Add the routes that end a run or try it again."""
    store = hub.store

    @router.post("/runs/{run_id}/cancel")
    def cancel(run_id: str) -> Json:
        """Ask for the end of a run. One that has ended stays as it is."""
        run = find_run(store, run_id)
        if run.state not in TERMINAL_RUNS:
            _cancel(hub, run)
            hub.changed()
        return views.run_view(store, store.run(run.id))

    @router.post("/runs/{run_id}/retry")
    def retry(run_id: str) -> Json:
        """Queue one more attempt of a run that ended without a result; a blocked campaign goes on."""
        run = find_run(store, run_id)
        store.retry_run(run.id, "a person", hub.clock.time())
        if store.campaign(run.campaign_id).state is CampaignState.BLOCKED:
            store.set_campaign_state(run.campaign_id, CampaignState.RUNNING)
        hub.changed()
        return views.run_view(store, store.run(run.id))


def _cancel(hub: Hub, run: RunRow) -> None:
    """An attempt under way is stopped by its worker, and the run ends with it; otherwise it ends now."""
    why, at = "a person cancelled the run", hub.clock.time()
    live = [a for a in hub.store.attempts_of_run(run.id) if a.state not in TERMINAL_ATTEMPTS]
    for attempt in live:
        hub.store.request_attempt_stop(attempt.id, why, at)
    if all(a.state is AttemptState.QUEUED for a in live):
        hub.store.set_run_state(run.id, RunState.CANCELLED, reason=why)


def find_run(store: Store, reference: str) -> RunRow:
    """Return the run with this id, a unique part of it, this label (``s1-b16 seed 3``), or the only run of this blueprint.

    Raises:
        NotFound: nothing matches; the nearest is suggested.
        Conflict: several match.
    """
    labels: dict[str, str] = {}
    for campaign in store.campaigns():
        names = {row.id: row.name for row in store.blueprints(campaign.id)}
        for run in store.runs(campaign.id):
            labels[run.id] = f"{names[run.blueprint_id]} seed {run.seed}"
    if reference in labels:
        return store.run(reference)
    found = [i for i, label in labels.items() if reference == label]
    found = found or [i for i, label in labels.items() if label.startswith(f"{reference} seed ")]
    found = found or [i for i in labels if len(reference) >= 4 and reference in i]
    if len(found) == 1:
        return store.run(found[0])
    if found:
        shown = ", ".join(f"{i} ({labels[i]})" for i in found[-8:])
        raise Conflict(
            f"{len(found)} runs match {reference!r}.", hint=f"Give the whole id of one: {shown}."
        )
    near = get_close_matches(reference, [*labels, *labels.values()], n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else "'a3r run list CAMPAIGN' shows the runs."
    raise NotFound(f"No run {reference!r}.", hint=hint, reference=reference)


def _attempt(hub: Hub, run: RunRow, ordinal: int | None) -> AttemptRow:
    attempts = hub.store.attempts_of_run(run.id)
    if ordinal is None:
        chosen = attempts[-1] if attempts else None
    else:
        chosen = next((a for a in attempts if a.ordinal == ordinal), None)
    if chosen is None:
        raise NotFound(
            f"Run {run.id!r} has no attempt {ordinal or ''}".rstrip() + ".",
            hint=f"It has {len(attempts)} so far; 'a3r run show {run.id}' lists them.",
        )
    return chosen
