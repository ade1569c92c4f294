"""Blueprints and their versions; an edit is a new version and voids every review of the old one."""

from __future__ import annotations

from sqlmodel import Session, col, select

from a3r.blueprints.model import Blueprint
from a3r.core.errors import Conflict
from a3r.core.ids import new_id
from a3r.store.book import Book, count_rows, fetch, not_found, note
from a3r.store.campaigns import find_campaign
from a3r.store.reviews import standing_verdict, void_reviews
from a3r.store.rows import BlueprintRow
from a3r.store.tables import (
    AttemptTable,
    BlueprintTable,
    BlueprintVersionTable,
    RunTable,
    StageTable,
)


class BlueprintBook(Book):
    """What the Store says about blueprints."""

    def blueprints(self, campaign_id: str, stage_id: str | None = None) -> list[BlueprintRow]:
        """The campaign's (or only the stage's) blueprints in order of creation."""
        with self._db.read() as session:
            query = select(BlueprintTable).where(BlueprintTable.campaign_id == campaign_id)
            if stage_id is not None:
                query = query.where(BlueprintTable.stage_id == stage_id)
            found = session.exec(query.order_by(col(BlueprintTable.position))).all()
            return [to_row(session, r) for r in found]

    def blueprint(self, reference: str) -> BlueprintRow:
        """Find by id or by ``campaign/name`` (the campaign as in ``campaign()``).

        Raises:
            NotFound: nothing matches; the nearest is suggested.
        """
        with self._db.read() as session:
            return to_row(session, _find(session, reference))

    def replace_blueprint(
        self, blueprint_id: str, blueprint: Blueprint, at: float, artifact_sha: str | None = None
    ) -> BlueprintRow:
        """Store a new version and void all reviews; the same content again changes nothing.

        Raises:
            Conflict: attempts were already claimed (their data belong to the old content), the name differs, or
                its runs exist for other seeds.
        """
        with self._db.write() as session:
            record = fetch(session, BlueprintTable, blueprint_id, "blueprint")
            sha = artifact_sha or record.artifact_sha
            if blueprint.content_hash() == record.content_hash and sha == record.artifact_sha:
                return to_row(session, record)
            _refuse_edit(session, record, blueprint)
            before = record.content_hash
            record.version += 1
            record.body = blueprint.model_dump(mode="json")
            record.content_hash, record.cell_hash = blueprint.content_hash(), blueprint.cell_hash()
            record.artifact_sha = sha
            _keep_version(session, record, at)
            void_reviews(session, blueprint_id, at)
            note(
                session,
                record.campaign_id,
                "blueprint_edited",
                record.name,
                at,
                data={"version": record.version, "before": before, "after": record.content_hash},
            )
            session.flush()
            return to_row(session, record)


def new_blueprint(
    session: Session, stage: StageTable, blueprint: Blueprint, artifact_sha: str, at: float
) -> None:
    """Add version 1 to the stage, within its transaction."""
    record = BlueprintTable(
        id=new_id("bp", at),
        campaign_id=stage.campaign_id,
        stage_id=stage.id,
        position=count_rows(session, BlueprintTable, stage.campaign_id),
        name=blueprint.name,
        version=1,
        body=blueprint.model_dump(mode="json"),
        content_hash=blueprint.content_hash(),
        cell_hash=blueprint.cell_hash(),
        artifact_sha=artifact_sha,
        created_at=at,
    )
    session.add(record)
    session.flush()
    _keep_version(session, record, at)


def to_row(session: Session, record: BlueprintTable) -> BlueprintRow:
    """Detach, with the standing verdict on the current content."""
    body = record.model_dump(exclude={"position", "body"})
    verdict = standing_verdict(session, record)
    found = {"blueprint": record.body, "document": record.body, "review": verdict}
    return BlueprintRow.model_validate({**body, **found})


def _keep_version(session: Session, record: BlueprintTable, at: float) -> None:
    session.add(
        BlueprintVersionTable(
            blueprint_id=record.id,
            version=record.version,
            body=record.body,
            content_hash=record.content_hash,
            artifact_sha=record.artifact_sha,
            at=at,
        )
    )


def _find(session: Session, reference: str) -> BlueprintTable:
    exact = session.get(BlueprintTable, reference)
    if exact is not None:
        return exact
    query = select(BlueprintTable)
    campaign, slash, name = reference.rpartition("/")
    if slash:
        query = query.where(BlueprintTable.campaign_id == find_campaign(session, campaign).id)
    records = session.exec(query).all()
    found = [r for r in records if r.name == name]
    if not found:
        known = [r.name for r in records] if slash else [r.id for r in records]
        raise not_found("blueprint", name, known)
    if len(found) > 1:
        raise Conflict(
            f"{len(found)} blueprints are named {name!r}",
            hint=f"say which: {', '.join(f'{r.campaign_id}/{r.name}' for r in found)}",
        )
    return found[0]


def _refuse_edit(session: Session, record: BlueprintTable, blueprint: Blueprint) -> None:
    if blueprint.name != record.name:
        raise Conflict(f"blueprint {record.name!r} cannot be renamed to {blueprint.name!r}")
    runs = session.exec(select(RunTable).where(RunTable.blueprint_id == record.id)).all()
    touched = session.exec(
        select(AttemptTable.id)
        .where(col(AttemptTable.run_id).in_([r.id for r in runs]))
        .where(AttemptTable.fencing_token > 0)
    ).all()
    if touched:
        raise Conflict(
            f"blueprint {record.name!r} already ran ({touched[0]!r}): it is no longer edited",
            hint="stop the campaign, or put the change in a blueprint of its own",
        )
    extra = {r.seed for r in runs} - set(blueprint.seeds)
    if extra:
        raise Conflict(
            f"blueprint {record.name!r} has runs for seeds {sorted(extra)} that the edit drops",
            hint="keep these seeds",
        )
