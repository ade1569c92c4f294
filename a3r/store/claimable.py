"""Queued attempts that a worker might be given. Asked for after every write while workers wait, so it must not cost more than it has to."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlmodel import Session, col, func, select

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, CampaignState, CommandState
from a3r.store.book import Book
from a3r.store.tables import AttemptTable, BlueprintTable, CampaignTable, CommandTable, RunTable

FIRST_PAGE, MOST_PAGE = 4, 256
_NOT_HELD = [AttemptState.QUEUED.value, *(state.value for state in TERMINAL_ATTEMPTS)]
_HELD = [state.value for state in AttemptState if state.value not in _NOT_HELD]


class ClaimableBook(Book):
    """What the Store says about what waits for workers, in one cheap look each."""

    def has_claimable(self) -> bool:
        """Whether some running campaign has an attempt queued and room for it; whether a worker fits is not looked at."""
        with self._db.read() as session:
            return bool(with_room(session))

    def has_orders(self) -> bool:
        """Whether any worker is to be told something: an attempt that shall end, or a question."""
        with self._db.read() as session:
            stop = (
                select(AttemptTable.id)
                .where(col(AttemptTable.state).in_(_HELD))
                .where(col(AttemptTable.stop_reason).is_not(None))
            )
            if session.exec(stop.limit(1)).first() is not None:
                return True
            asked = select(CommandTable.id).where(CommandTable.state == CommandState.OPEN.value)
            return session.exec(asked.limit(1)).first() is not None


def with_room(session: Session) -> list[str]:
    """Ids of running campaigns that have an attempt queued and hold fewer than their capacity."""
    queued = (
        select(AttemptTable.id)
        .where(AttemptTable.campaign_id == CampaignTable.id)
        .where(AttemptTable.state == AttemptState.QUEUED.value)
        .exists()
    )
    held = (
        select(func.count())
        .select_from(AttemptTable)
        .where(AttemptTable.campaign_id == CampaignTable.id)
        .where(col(AttemptTable.state).in_(_HELD))
        .scalar_subquery()
    )
    return list(
        session.exec(
            select(CampaignTable.id)
            .where(CampaignTable.state == CampaignState.RUNNING.value)
            .where(col(CampaignTable.stop_requested_at).is_(None))
            .where(queued)
            .where(held < col(CampaignTable.capacity))
        ).all()
    )


def queued_of(
    session: Session, campaigns: Collection[str]
) -> Iterator[tuple[AttemptTable, BlueprintTable]]:
    """Queued attempts of these campaigns with their blueprints, oldest first, read as far as they are looked at."""
    after, size = -1, FIRST_PAGE
    while True:
        page = session.exec(
            select(AttemptTable, BlueprintTable)
            .join(RunTable, col(RunTable.id) == col(AttemptTable.run_id))
            .join(BlueprintTable, col(BlueprintTable.id) == col(RunTable.blueprint_id))
            .where(AttemptTable.state == AttemptState.QUEUED.value)
            .where(col(AttemptTable.campaign_id).in_(campaigns))
            .where(col(AttemptTable.queue_order) > after)
            .order_by(col(AttemptTable.queue_order))
            .limit(size)
        ).all()
        yield from page
        if len(page) < size:
            return
        after, size = page[-1][0].queue_order, min(MOST_PAGE, 2 * size)
