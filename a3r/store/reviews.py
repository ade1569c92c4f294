"""Reviews: a verdict on one content hash. An edit voids it; a time-out never stands for one."""

from __future__ import annotations

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.store.book import Book, fetch, note
from a3r.store.campaigns import FINAL
from a3r.store.rows import ReviewRow
from a3r.store.tables import BlueprintTable, CampaignTable, ReviewTable


class ReviewBook(Book):
    """What the Store says about reviews."""

    def review(
        self,
        blueprint_id: str,
        content_hash: str,
        verdict: ReviewStatus,
        by: str,
        # The contract's word for what the reviewer wrote; the event helper is imported as ``note``.
        note: str,
        at: float,
    ) -> ReviewRow:
        """Record a verdict on exactly this content; the latest one stands. Repeating the standing verdict changes nothing.

        Raises:
            Conflict: the hash is not the current one, the verdict is ``pending``, or the campaign is over: its report says who
                had decided what, and stays true.
        """
        with self._db.write() as session:
            record = fetch(session, BlueprintTable, blueprint_id, "blueprint")
            _require_verdict_on(record, content_hash, verdict)
            standing = _standing(session, record)
            same = (verdict.value, by, note)
            if standing is not None and (standing.verdict, standing.by, standing.note) == same:
                return _to_row(standing)
            _require_open(session, record)
            made = ReviewTable(
                blueprint_id=blueprint_id,
                content_hash=content_hash,
                verdict=verdict.value,
                by=by,
                note=note,
                at=at,
            )
            session.add(made)
            _tell(session, record, made)
            session.flush()
            return _to_row(made)

    def reviews(self, campaign_id: str) -> list[ReviewRow]:
        """All verdicts of the campaign in order, voided ones too."""
        with self._db.read() as session:
            found = session.exec(
                select(ReviewTable)
                .join(BlueprintTable, col(BlueprintTable.id) == col(ReviewTable.blueprint_id))
                .where(BlueprintTable.campaign_id == campaign_id)
                .order_by(col(ReviewTable.id))
            )
            return [_to_row(r) for r in found]

    def approved(self, blueprint_id: str) -> bool:
        """True when somebody approved exactly the current content; also under ``review none`` only a real approval counts."""
        with self._db.read() as session:
            record = fetch(session, BlueprintTable, blueprint_id, "blueprint")
            return standing_verdict(session, record) is ReviewStatus.APPROVED

    def may_run(self, blueprint_id: str) -> bool:
        """True when it is approved, or when the campaign asked for ``review none`` and nobody objected."""
        with self._db.read() as session:
            return may_run(session, fetch(session, BlueprintTable, blueprint_id, "blueprint"))


def _require_verdict_on(record: BlueprintTable, content_hash: str, verdict: ReviewStatus) -> None:
    if verdict is ReviewStatus.PENDING:
        raise Conflict("'pending' is not a verdict", hint="approve, reject or ask for changes")
    if content_hash != record.content_hash:
        raise Conflict(
            f"blueprint {record.name!r} changed since it was read: now {record.content_hash[:12]!r}",
            hint="read it again (`a3r blueprint show`), then decide on what it says now",
            current=record.content_hash,
        )


def standing_verdict(session: Session, record: BlueprintTable) -> ReviewStatus:
    """The latest verdict on the current content that no edit voided; ``pending`` when there is none."""
    standing = _standing(session, record)
    return ReviewStatus.PENDING if standing is None else ReviewStatus(standing.verdict)


def may_run(session: Session, record: BlueprintTable) -> bool:
    """See ``ReviewBook.may_run``."""
    campaign = fetch(session, CampaignTable, record.campaign_id, "campaign")
    return permits(ReviewMode(campaign.review_mode), standing_verdict(session, record))


def permits(mode: ReviewMode, verdict: ReviewStatus) -> bool:
    """The rule of ``ReviewBook.may_run``, for a campaign's mode and the standing verdict on a blueprint."""
    unasked = mode is ReviewMode.NONE
    return verdict is ReviewStatus.APPROVED or (unasked and verdict is ReviewStatus.PENDING)


def void_reviews(session: Session, blueprint_id: str, at: float) -> None:
    """Void every standing review of the blueprint, within the transaction of the edit."""
    for review in session.exec(
        select(ReviewTable).where(
            ReviewTable.blueprint_id == blueprint_id, col(ReviewTable.voided_at).is_(None)
        )
    ):
        review.voided_at = at


def _require_open(session: Session, record: BlueprintTable) -> None:
    campaign = fetch(session, CampaignTable, record.campaign_id, "campaign")
    if CampaignState(campaign.state) in FINAL:
        raise Conflict(
            f"campaign {campaign.id!r} is {campaign.state}: its blueprints take no more verdicts",
            hint="start the goal again to plan anew; the finished records stay as they are",
        )


def _standing(session: Session, record: BlueprintTable) -> ReviewTable | None:
    return session.exec(
        select(ReviewTable)
        .where(
            ReviewTable.blueprint_id == record.id,
            ReviewTable.content_hash == record.content_hash,
            col(ReviewTable.voided_at).is_(None),
        )
        .order_by(col(ReviewTable.id).desc())
    ).first()


def _tell(session: Session, record: BlueprintTable, made: ReviewTable) -> None:
    note(
        session,
        record.campaign_id,
        f"blueprint_{made.verdict}",
        record.name,
        made.at,
        actor=made.by,
        data={"content_hash": made.content_hash, "note": made.note},
    )


def _to_row(record: ReviewTable) -> ReviewRow:
    return ReviewRow.model_validate(record.model_dump())
