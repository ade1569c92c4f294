"""How long a campaign has worked: its life without the time in which it waited for a person."""

from __future__ import annotations

from collections.abc import Iterator

from a3r.core.types import CampaignState
from a3r.store.rows import CampaignRow, EventRow
from a3r.store.store import Store

WAITING = frozenset({CampaignState.AWAITING_REVIEW, CampaignState.PAUSED, CampaignState.BLOCKED})
"""States in which the campaign's wall clock stands still: it waits for a person."""
PAGE = 1000


def worked_s(store: Store, campaign: CampaignRow, now: float) -> float:
    """Seconds in which the campaign did not wait for a person."""
    prefix, states = "campaign_", {s.value for s in CampaignState}
    total, since, waiting = 0.0, campaign.created_at, False
    for event in events_of(store, campaign.id):
        state = event.kind.removeprefix(prefix)
        if event.kind.startswith(prefix) and state in states:
            total += 0.0 if waiting else event.at - since
            since, waiting = event.at, CampaignState(state) in WAITING
    return total + (0.0 if waiting else now - since)


def minutes_are_up(store: Store, campaign: CampaignRow, minutes: float | None, now: float) -> bool:
    """Whether the campaign has worked for so many minutes; never with None."""
    if minutes is None or now - campaign.created_at < 60 * minutes:
        return False
    return worked_s(store, campaign, now) >= 60 * minutes


def events_of(store: Store, campaign_id: str) -> Iterator[EventRow]:
    """The campaign's events in order, read in pages."""
    after = 0
    while True:
        found = store.events(campaign_id, after_seq=after, limit=PAGE)
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1].seq
