"""The leader's long work and what its language model cost, as the command line sees them."""

from __future__ import annotations

from typing import Any, cast

from a3r.core.llm import Spent
from a3r.core.types import JobState
from a3r.store.rows import CampaignRow
from a3r.store.store import Store

Json = dict[str, Any]


def open_jobs(store: Store, campaign_id: str) -> list[Json]:
    """Jobs that are not done, in the order in which they were filed: ``kind``, ``subject``, ``state``, ``detail`` and times."""
    return [
        {
            "id": job.id,
            "kind": job.kind,
            "subject": job.id.removeprefix(f"{campaign_id}/{job.kind}/"),
            "state": job.state.value,
            "detail": job.detail,
            "waiting_since": job.waiting_since,
            "not_before": job.not_before,
            "tries": job.tries,
        }
        for job in store.jobs(campaign_id)
        if job.state is not JobState.DONE
    ]


def llm_costs(store: Store, row: CampaignRow) -> Json:
    """What calls of the language model took so far, those in flight at their reserve, and the limits (None: no limit)."""
    budget = cast("Json", row.goal_spec.get("budget") or {})
    by_purpose = store.llm_spent(row.id)
    total = Spent()
    for spent in by_purpose.values():
        total = total.plus(spent)
    return {
        **total.model_dump(),
        "limit_usd": budget.get("llm_usd"),
        "limit_tokens": budget.get("llm_tokens"),
        "limit_calls": budget.get("llm_calls"),
        "by_purpose": {purpose: spent.model_dump() for purpose, spent in by_purpose.items()},
    }
