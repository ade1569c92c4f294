"""What waits for a worker, and what room workers have: the two sides that a pool is asked by. One consistent look each."""

from __future__ import annotations

from collections import Counter, defaultdict

from sqlmodel import Session, col, select

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, CampaignState, WorkerState
from a3r.store.book import Book
from a3r.store.parsed import parsed
from a3r.store.placement import need_of
from a3r.store.reviews import may_run
from a3r.store.rows import RoomRow, WaitingRow
from a3r.store.tables import AttemptTable, BlueprintTable, CampaignTable, RunTable, WorkerTable

_NOT_HELD = [AttemptState.QUEUED.value, *(state.value for state in TERMINAL_ATTEMPTS)]


class WaitingBook(Book):
    """What the Store says about supply and demand."""

    def waiting(self) -> list[WaitingRow]:
        """Attempts that only lack a worker, oldest first: approved, of running campaigns, within their capacity."""
        with self._db.read() as session:
            queued = session.exec(
                select(AttemptTable, CampaignTable, BlueprintTable)
                .join(CampaignTable, col(CampaignTable.id) == col(AttemptTable.campaign_id))
                .join(RunTable, col(RunTable.id) == col(AttemptTable.run_id))
                .join(BlueprintTable, col(BlueprintTable.id) == col(RunTable.blueprint_id))
                .where(AttemptTable.state == AttemptState.QUEUED.value)
                .where(CampaignTable.state == CampaignState.RUNNING.value)
                .where(col(CampaignTable.stop_requested_at).is_(None))
                .order_by(col(AttemptTable.queue_order))
            ).all()
            if not queued:
                return []
            taken = _held_by_campaign(session)
            found: list[WaitingRow] = []
            for attempt, campaign, blueprint in queued:
                if taken[campaign.id] >= campaign.capacity or not may_run(session, blueprint):
                    continue
                taken[campaign.id] += 1
                need = need_of(parsed(session, blueprint.id, blueprint.content_hash))
                found.append(
                    WaitingRow(attempt_id=attempt.id, queued_at=attempt.queued_at, need=need)
                )
            return found

    def rooms(self) -> list[RoomRow]:
        """What every active worker has left, by id; those that are gone too: who lives is not known here."""
        with self._db.read() as session:
            slots: defaultdict[str, int] = defaultdict(int)
            gpus: defaultdict[str, int] = defaultdict(int)
            held = session.exec(
                select(AttemptTable, BlueprintTable)
                .join(RunTable, col(RunTable.id) == col(AttemptTable.run_id))
                .join(BlueprintTable, col(BlueprintTable.id) == col(RunTable.blueprint_id))
                .where(col(AttemptTable.state).not_in(_NOT_HELD))
            ).all()
            for attempt, blueprint in held:
                need = need_of(parsed(session, blueprint.id, blueprint.content_hash))
                slots[str(attempt.worker_id)] += need.slots
                gpus[str(attempt.worker_id)] += need.gpus
            workers = session.exec(
                select(WorkerTable)
                .where(WorkerTable.state == WorkerState.ACTIVE.value)
                .order_by(col(WorkerTable.id))
            )
            return [
                RoomRow(
                    worker_id=w.id,
                    slots=max(0, w.slots - slots[w.id]),
                    gpus=max(0, len(w.inventory.get("gpus") or ()) - gpus[w.id]),
                )
                for w in workers
            ]


def _held_by_campaign(session: Session) -> Counter[str]:
    return Counter(
        session.exec(
            select(AttemptTable.campaign_id).where(col(AttemptTable.state).not_in(_NOT_HELD))
        ).all()
    )
