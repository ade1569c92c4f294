"""Leases run out only while the hub is up: silence during its own absence proves nothing about a worker."""

from __future__ import annotations

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState
from a3r.hub.settings import HubSettings
from a3r.store.rows import AttemptRow
from a3r.store.store import Store


def expire(store: Store, settings: HubSettings, now: float) -> int:
    """Move silent attempts to ``unreachable`` and, ``lost_after_s`` later, to ``lost``; return how many moved.

    Safe to call at any moment and any number of times. Writes only when something is due.
    """
    moved = 0
    if any(_is_due(a, settings, now) for a in _live(store)):
        moved += len(store.expire_leases(now, settings.started_at))
    for attempt in _live(store):
        if attempt.state is not AttemptState.UNREACHABLE:
            continue
        since = max(attempt.unreachable_at or now, settings.started_at)
        if now - since >= settings.lost_after_s:
            reason = f"no word from worker {attempt.worker_id!r} for {now - since:.0f} s"
            store.mark_lost(attempt.id, reason, now)
            moved += 1
    return moved


def _live(store: Store) -> list[AttemptRow]:
    """Attempts that some worker holds."""
    return [
        attempt
        for campaign in store.campaigns()
        for state, rows in store.pending_work(campaign.id).attempts_by_state.items()
        if state not in TERMINAL_ATTEMPTS and state is not AttemptState.QUEUED
        for attempt in rows
    ]


def _is_due(attempt: AttemptRow, settings: HubSettings, now: float) -> bool:
    if attempt.state is AttemptState.UNREACHABLE:
        return False
    return max(attempt.lease_expires_at or 0.0, settings.started_at + attempt.lease_s) < now
