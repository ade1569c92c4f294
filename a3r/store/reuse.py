"""Results of earlier campaigns that a new one could take over: the same cell (``cell_hash``) and the same seed.

An offer changes nothing. A person accepts; then the evidence is copied under a new attempt that never ran and names its source.
Confirmatory runs are never taken over: what was known when a stage was planned can not confirm it.
"""

from __future__ import annotations

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.ids import new_id, new_nonce
from a3r.core.types import AttemptState, RunState
from a3r.store.attempts import to_row
from a3r.store.book import Book, fetch, next_count, note
from a3r.store.reviews import may_run
from a3r.store.rows import REUSED, AttemptRow, OfferRow
from a3r.store.tables import (  # fmt: skip
    AttemptTable,
    BlueprintTable,
    EvalRoundTable,
    RunTable,
    StageTable,
    StepTable,
)

CONFIRMS = "replicate"
"""Kind of the stages whose seeds must be fresh."""


class ReuseBook(Book):
    """What the Store says about taking over results."""

    def reusable(self, campaign_id: str) -> list[OfferRow]:
        """Planned runs of exploratory stages that have no attempt yet, each with the oldest result of an earlier campaign."""
        with self._db.read() as session:
            planned = session.exec(
                select(BlueprintTable)
                .join(StageTable, col(StageTable.id) == col(BlueprintTable.stage_id))
                .where(BlueprintTable.campaign_id == campaign_id, StageTable.kind != CONFIRMS)
                .order_by(col(BlueprintTable.position))
            ).all()
            out: list[OfferRow] = []
            for record in planned:
                begun = _begun(session, record.id)
                seeds: list[int] = [s for s in record.body["seeds"] if s not in begun]
                for seed in seeds:
                    source = _source(session, record, seed)
                    if source is not None:
                        out.append(_offer(record, seed, source))
            return out

    def reuse_run(self, run_id: str, source_run: str, at: float) -> AttemptRow:
        """Take over the evidence of ``source_run`` as this run's accepted result.

        Raises:
            Conflict: another cell or seed, a confirmatory stage, a run that has begun, a blueprint that may not run, or a source
                that has no result of its own.
        """
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            record = fetch(session, BlueprintTable, run.blueprint_id, "blueprint")
            source = fetch(session, RunTable, source_run, "run")
            _refuse(session, run, record, source)
            taken = fetch(session, AttemptTable, source.accepted_attempt or "", "attempt")
            attempt = AttemptTable(
                id=new_id("at", at),
                run_id=run.id,
                campaign_id=run.campaign_id,
                queue_order=next_count(session, "queue"),
                ordinal=1,
                state=AttemptState.SUCCEEDED.value,
                nonce=new_nonce(),
                summary={**taken.summary, REUSED: f"{source.campaign_id}/{source.id}"},
                queued_at=at,
                ended_at=at,
                step=taken.step,
                detail="reused",
            )
            session.add(attempt)
            session.flush()
            _copy(session, taken.id, attempt.id)
            run.state, run.accepted_attempt = RunState.SUCCEEDED.value, attempt.id
            data = {"from": f"{source.campaign_id}/{source.id}", "attempt": attempt.id}
            note(session, run.campaign_id, "run_reused", run.id, at, data=data)
            return to_row(attempt)


def _begun(session: Session, blueprint_id: str) -> set[int]:
    """Seeds of the blueprint whose run has an attempt or is over."""
    runs = session.exec(select(RunTable).where(RunTable.blueprint_id == blueprint_id)).all()
    tried = set(
        session.exec(
            select(AttemptTable.run_id).where(col(AttemptTable.run_id).in_([r.id for r in runs]))
        ).all()
    )
    return {r.seed for r in runs if r.id in tried or r.state != RunState.PENDING.value}


def _source(session: Session, record: BlueprintTable, seed: int) -> RunTable | None:
    """The oldest result of this cell and seed in another campaign, run there by the approved client itself."""
    found = session.exec(
        select(RunTable, AttemptTable)
        .join(BlueprintTable, col(BlueprintTable.id) == col(RunTable.blueprint_id))
        .join(AttemptTable, col(AttemptTable.id) == col(RunTable.accepted_attempt))
        .where(
            BlueprintTable.cell_hash == record.cell_hash,
            BlueprintTable.campaign_id != record.campaign_id,
            RunTable.seed == seed,
            AttemptTable.revision == 0,
        )
        .order_by(col(AttemptTable.ended_at), col(RunTable.id))
    )
    return next((run for run, attempt in found if REUSED not in attempt.summary), None)


def _offer(record: BlueprintTable, seed: int, source: RunTable) -> OfferRow:
    return OfferRow(
        stage_id=record.stage_id,
        blueprint_id=record.id,
        blueprint=record.name,
        seed=seed,
        source_campaign=source.campaign_id,
        source_run=source.id,
    )


def _refuse(session: Session, run: RunTable, record: BlueprintTable, source: RunTable) -> None:
    stage = fetch(session, StageTable, record.stage_id, "stage")
    why = ""
    if stage.kind == CONFIRMS:
        why = "its stage confirms, and a result that was known before can not"
    elif run.seed in _begun(session, record.id):
        why = "it has begun"
    elif not may_run(session, record):
        why = "its blueprint is not approved"
    else:
        known = _source(session, record, run.seed)
        if known is None or known.id != source.id:
            why = f"run {source.id!r} is no result of the same cell and seed in another campaign"
    if why:
        raise Conflict(
            f"run {run.id!r} takes over no result: {why}",
            hint="`a3r campaign reuse CAMPAIGN` shows what is offered",
        )


def _copy(session: Session, source: str, target: str) -> None:
    for step in session.exec(select(StepTable).where(StepTable.attempt_id == source)).all():
        session.add(StepTable(attempt_id=target, step=step.step, body=step.body))
    rounds = select(EvalRoundTable).where(EvalRoundTable.attempt_id == source)
    for found in session.exec(rounds).all():
        session.add(
            EvalRoundTable(attempt_id=target, name=found.name, body=found.body, at=found.at)
        )
