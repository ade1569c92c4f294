"""Leases run out only while the hub is up: silence during its own absence proves nothing about a worker."""

from __future__ import annotations

import contextlib

from a3r.core.errors import Conflict
from a3r.core.types import AttemptState
from a3r.hub.settings import HubSettings
from a3r.store.rows import AttemptRow
from a3r.store.store import Store


def expire(store: Store, settings: HubSettings, now: float) -> int:
    """Move silent attempts to ``unreachable`` and, ``lost_after_s`` later, to ``lost``; return how many moved.

    Safe to call at any moment and any number of times. Writes only when something is due.
    """
    moved, held = 0, store.held_attempts()
    if any(_is_due(a, settings, now) for a in held):
        moved += len(store.expire_leases(now, settings.started_at))
        held = store.held_attempts()
    for attempt in held:
        if attempt.state is not AttemptState.UNREACHABLE:
            continue
        since = max(attempt.unreachable_at or now, settings.started_at)
        if now - since >= settings.lost_after_s:
            reason = f"no word from worker {attempt.worker_id!r} for {now - since:.0f} s"
            with contextlib.suppress(Conflict):  # its worker came back in this very moment
                store.mark_lost(attempt.id, reason, now)
                moved += 1
    return moved


def _is_due(attempt: AttemptRow, settings: HubSettings, now: float) -> bool:
    if attempt.state is AttemptState.UNREACHABLE:
        return False
    return max(attempt.lease_expires_at or 0.0, settings.started_at + attempt.lease_s) < now
