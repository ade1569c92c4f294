"""Amendments: what is added to a stage's frozen plan, each with its reason. Only ever added to."""

from __future__ import annotations

from typing import Any

from sqlmodel import col, select

from a3r.core.errors import Conflict
from a3r.core.types import StageState
from a3r.store.book import Book, fetch, note
from a3r.store.rows import AmendmentRow
from a3r.store.stages import DECIDED
from a3r.store.tables import AmendmentTable, StageTable


class AmendmentBook(Book):
    """What the Store says about amendments."""

    def add_amendment(
        self, stage_id: str, changes: dict[str, Any], reason: str, by: str, at: float
    ) -> AmendmentRow:
        """Add to the plan of a stage; the plan and its hash stay as they were approved.

        Raises:
            Conflict: no reason is given, or the stage is analysed or abandoned, so its results are known.
            NotFound: no such stage.
        """
        with self._db.write() as session:
            stage = fetch(session, StageTable, stage_id, "stage")
            if StageState(stage.state) in DECIDED:
                raise Conflict(f"stage {stage_id!r} is {stage.state}: its plan can not be amended")
            if not reason.strip():
                raise Conflict(
                    f"an amendment of stage {stage_id!r} needs a reason",
                    hint="say why the plan is not followed as it was approved",
                )
            record = AmendmentTable(
                campaign_id=stage.campaign_id,
                stage_id=stage_id,
                changes=changes,
                reason=reason,
                by=by,
                at=at,
            )
            session.add(record)
            data = {"changes": changes, "reason": reason}
            note(session, stage.campaign_id, "plan_amended", stage_id, at, actor=by, data=data)
            session.flush()
            return AmendmentRow.model_validate(record.model_dump())

    def amendments(self, campaign_id: str) -> list[AmendmentRow]:
        """The campaign's amendments in order."""
        with self._db.read() as session:
            query = select(AmendmentTable).where(AmendmentTable.campaign_id == campaign_id)
            found = session.exec(query.order_by(col(AmendmentTable.id)))
            return [AmendmentRow.model_validate(a.model_dump()) for a in found]
