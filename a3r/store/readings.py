"""Goals that were filed as prose: the campaign gets its goal spec once, when somebody has read it."""

from __future__ import annotations

from typing import Any

from a3r.core.errors import Conflict
from a3r.core.hashing import content_hash
from a3r.store.book import Book, fetch, note
from a3r.store.campaigns import DEFAULT_CAPACITY, to_row
from a3r.store.rows import CampaignRow
from a3r.store.tables import CampaignTable


class ReadingBook(Book):
    """What the Store says about how a goal was understood."""

    def set_goal_spec(self, campaign_id: str, goal_spec: dict[str, Any]) -> CampaignRow:
        """Give a campaign that was filed without one its goal spec; frozen from then on. The same spec again changes nothing.

        Raises:
            Conflict: the campaign has another one.
        """
        at = self._clock.time()
        with self._db.write() as session:
            record = fetch(session, CampaignTable, campaign_id, "campaign")
            if record.goal_spec == goal_spec:
                return to_row(record)
            if record.goal_spec:
                raise Conflict(
                    f"campaign {campaign_id!r} has a goal already, which is frozen",
                    hint="start a new campaign from the changed goal",
                )
            record.goal_spec = goal_spec
            record.capacity = max(1, int(goal_spec.get("capacity") or DEFAULT_CAPACITY))
            record.updated_at = at
            data = {"goal_hash": content_hash(goal_spec)}
            note(session, campaign_id, "goal_understood", campaign_id, at, data=data)
            return to_row(record)
