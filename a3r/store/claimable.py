"""Queued attempts that a worker might be given. Asked for after every write while workers wait, so it must not cost more than it has to."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable, bindparam
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, func, select

from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    AttemptState,
    CampaignState,
    CommandState,
    ReviewMode,
    ReviewStatus,
)
from a3r.store.book import Book
from a3r.store.reviews import permits
from a3r.store.tables import (
    AttemptTable,
    BlueprintTable,
    CampaignTable,
    CommandTable,
    ReviewTable,
    RunTable,
)

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued attempt, as far as a claim looks at it."""

    attempt_id: str
    queued_at: float
    blueprint_id: str
    content_hash: str
    may_run: bool
    """Its blueprint's current content is approved, or nobody asked for a review and nobody objected."""


def with_room(session: Session) -> list[str]:
    """Ids of running campaigns that have an attempt queued and hold fewer than their capacity."""
    return list(session.connection().execute(_WITH_ROOM).scalars())


def queued_of(session: Session, campaigns: Collection[str]) -> Iterator[Candidate]:
    """Queued attempts of these campaigns, oldest first, read as far as they are looked at."""
    after, size = -1, FIRST_PAGE
    while True:
        given = {"campaigns": list(campaigns), "after": after, "size": size}
        page: list[Any] = list(session.connection().execute(_QUEUED, given))
        for row in page:
            verdict = ReviewStatus(row.verdict or ReviewStatus.PENDING)
            may_run = permits(ReviewMode(row.review_mode), verdict)
            yield Candidate(
                row.attempt_id, row.queued_at, row.blueprint_id, row.content_hash, may_run
            )
        if len(page) < size:
            return
        after, size = page[-1].queue_order, min(MOST_PAGE, 2 * size)


def _with_room() -> Executable:
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
    return (
        select(CampaignTable.id)
        .where(CampaignTable.state == CampaignState.RUNNING.value)
        .where(col(CampaignTable.stop_requested_at).is_(None))
        .where(queued)
        .where(held < col(CampaignTable.capacity))
    )


def _queued() -> Executable:
    verdict = (
        select(ReviewTable.verdict)
        .where(ReviewTable.blueprint_id == BlueprintTable.id)
        .where(ReviewTable.content_hash == BlueprintTable.content_hash)
        .where(col(ReviewTable.voided_at).is_(None))
        .order_by(col(ReviewTable.id).desc())
        .limit(1)
        .scalar_subquery()
    )
    blueprint = col(BlueprintTable.id)
    wanted: list[Any] = [
        col(AttemptTable.id).label("attempt_id"),
        col(AttemptTable.queue_order),
        col(AttemptTable.queued_at),
        blueprint.label("blueprint_id"),
        col(BlueprintTable.content_hash),
        col(CampaignTable.review_mode),
        verdict.label("verdict"),
    ]
    return (
        sql_select(*wanted)
        .join(RunTable, col(RunTable.id) == col(AttemptTable.run_id))
        .join(BlueprintTable, blueprint == col(RunTable.blueprint_id))
        .join(CampaignTable, col(CampaignTable.id) == col(AttemptTable.campaign_id))
        .where(col(AttemptTable.state) == AttemptState.QUEUED.value)
        .where(col(AttemptTable.campaign_id).in_(bindparam("campaigns", expanding=True)))
        .where(col(AttemptTable.queue_order) > bindparam("after"))
        .order_by(col(AttemptTable.queue_order))
        .limit(bindparam("size"))
    )


# Made once: to build such a statement takes longer than to ask it.
_WITH_ROOM, _QUEUED = _with_room(), _queued()
