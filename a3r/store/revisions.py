"""Revisions: what became of a blueprint's client after its review. The approved blueprint itself never changes.

The newest approved revision is the client in force: the next claim of an attempt takes it. An approval (a person's, or the
rule of the campaign's review mode) is recorded as a deviation that names the revision, in the same transaction; the revision
itself holds the diff, and the report shows both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.types import CampaignState, RevisionState
from a3r.store.book import Book, fetch, not_found, note
from a3r.store.campaigns import FINAL
from a3r.store.rows import RevisionRow
from a3r.store.tables import BlueprintTable, CampaignTable, DeviationTable, RevisionTable

REMEDY = "client_revision"
"""``data["remedy"]`` of the deviation that a revision is."""


@dataclass(frozen=True, slots=True)
class Revised:
    """A changed client, before it is filed."""

    base_sha: str
    """Artifact that it was made from."""
    artifact_sha: str
    tree_hash: str
    diff: str
    """Unified, over all files."""
    reason: str
    """Why, in words."""
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])
    """The attempt that failed, its failure, which functions the diff touches, what the debug episode showed."""


class RevisionBook(Book):
    """What the Store says about revisions."""

    def add_revision(
        self,
        blueprint_ids: Sequence[str],
        revised: Revised,
        state: RevisionState,
        by: str,
        at: float,
    ) -> list[RevisionRow]:
        """File the same changed client for each blueprint; one that has it already is left alone, so a repeat is harmless.

        Raises:
            Conflict: a campaign is over; its records stay as they are.
        """
        with self._db.write() as session:
            rows = [_ensure(session, bid, revised, state, by, at) for bid in blueprint_ids]
            return [_row(record) for record in rows]

    def decide_revision(
        self, revision_id: str, state: RevisionState, by: str, at: float
    ) -> RevisionRow:
        """A person's verdict on a pending revision; the same verdict again changes nothing.

        Raises:
            Conflict: it was decided otherwise, the campaign is over, or ``state`` is no verdict.
        """
        with self._db.write() as session:
            record = fetch(session, RevisionTable, revision_id, "revision")
            before = RevisionState(record.state)
            if state is RevisionState.PENDING or before not in (RevisionState.PENDING, state):
                raise Conflict(
                    f"revision {record.ordinal} is {before.value}",
                    hint="a later repair is a revision of its own" if before is not state else "",
                )
            if before is state:
                return _row(record)
            blueprint = fetch(session, BlueprintTable, record.blueprint_id, "blueprint")
            _require_open(session, blueprint)
            record.state, record.by, record.decided_at = state.value, by, at
            _settled(session, blueprint, record, at)
            return _row(record)

    def revisions(self, campaign_id: str, blueprint_id: str | None = None) -> list[RevisionRow]:
        """The campaign's (or only the blueprint's) revisions in order of their making."""
        with self._db.read() as session:
            query = select(RevisionTable).where(RevisionTable.campaign_id == campaign_id)
            if blueprint_id is not None:
                query = query.where(RevisionTable.blueprint_id == blueprint_id)
            order = (col(RevisionTable.at), col(RevisionTable.id))
            return [_row(record) for record in session.exec(query.order_by(*order))]

    def revision(self, blueprint_id: str, ordinal: int) -> RevisionRow:
        """One revision of a blueprint, counted from 1.

        Raises:
            NotFound: it has no such revision.
        """
        with self._db.read() as session:
            query = select(RevisionTable).where(RevisionTable.blueprint_id == blueprint_id)
            found = {r.ordinal: r for r in session.exec(query)}
            if ordinal not in found:
                raise not_found("revision", str(ordinal), map(str, found))
            return _row(found[ordinal])

    def revision_in_force(self, blueprint_id: str) -> RevisionRow | None:
        """The newest approved revision; None = the blueprint's own client."""
        with self._db.read() as session:
            record = in_force(session, blueprint_id)
            return None if record is None else _row(record)


def in_force(session: Session, blueprint_id: str) -> RevisionTable | None:
    """The newest approved revision of a blueprint."""
    return session.exec(
        select(RevisionTable)
        .where(
            RevisionTable.blueprint_id == blueprint_id,
            RevisionTable.state == RevisionState.APPROVED.value,
        )
        .order_by(col(RevisionTable.ordinal).desc())
    ).first()


def number_in_force(session: Session, blueprint_id: str) -> int:
    """Its ordinal; 0 = the blueprint's own client."""
    found = in_force(session, blueprint_id)
    return 0 if found is None else found.ordinal


def _ensure(
    session: Session, blueprint_id: str, revised: Revised, state: RevisionState, by: str, at: float
) -> RevisionTable:
    blueprint = fetch(session, BlueprintTable, blueprint_id, "blueprint")
    query = select(RevisionTable).where(RevisionTable.blueprint_id == blueprint_id)
    known = list(session.exec(query.order_by(col(RevisionTable.ordinal))))
    for record in known:
        if (record.base_sha, record.artifact_sha) == (revised.base_sha, revised.artifact_sha):
            return record
    _require_open(session, blueprint)
    ordinal = len(known) + 1
    record = RevisionTable(
        id=f"{blueprint_id}-r{ordinal}",
        campaign_id=blueprint.campaign_id,
        blueprint_id=blueprint_id,
        ordinal=ordinal,
        base_sha=revised.base_sha,
        artifact_sha=revised.artifact_sha,
        tree_hash=revised.tree_hash,
        diff=revised.diff,
        reason=revised.reason,
        evidence=revised.evidence,
        state=state.value,
        by=by,
        at=at,
        decided_at=None if state is RevisionState.PENDING else at,
    )
    session.add(record)
    session.flush()
    _settled(session, blueprint, record, at)
    return record


def _settled(session: Session, blueprint: BlueprintTable, record: RevisionTable, at: float) -> None:
    """Tell of it, and disclose an approved one as a deviation."""
    told = {"revision": record.ordinal, "by": record.by, "reason": record.reason}
    kind = f"revision_{record.state}"
    note(session, record.campaign_id, kind, blueprint.name, at, actor="leader", data=told)
    if record.state != RevisionState.APPROVED.value:
        return
    session.add(
        DeviationTable(
            campaign_id=record.campaign_id,
            blueprint_id=record.blueprint_id,
            attempt_id=record.evidence.get("attempt"),
            what=f"the client of {blueprint.name} was repaired (revision {record.ordinal})",
            data={
                "remedy": REMEDY,
                "why": record.reason,
                **told,
                "revision_id": record.id,
                "failure": record.evidence.get("failure"),
                "functions": record.evidence.get("functions", []),
            },
            at=at,
        )
    )
    session.flush()


def _require_open(session: Session, blueprint: BlueprintTable) -> None:
    campaign = fetch(session, CampaignTable, blueprint.campaign_id, "campaign")
    if CampaignState(campaign.state) in FINAL:
        raise Conflict(
            f"campaign {campaign.id!r} is {campaign.state}: its clients are no longer revised",
            hint="start the goal again; the finished records stay as they are",
        )


def _row(record: RevisionTable) -> RevisionRow:
    return RevisionRow.model_validate(record.model_dump())
