"""Stages: a question with its blueprints, added as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from a3r.blueprints.model import Blueprint
from a3r.core.errors import Conflict
from a3r.core.hashing import content_hash
from a3r.core.types import CampaignState, StageState
from a3r.store.blueprints import new_blueprint
from a3r.store.book import Book, count_rows, fetch, note
from a3r.store.campaigns import FINAL
from a3r.store.rows import StageRow
from a3r.store.tables import BlueprintTable, CampaignTable, StageTable

DECIDED = frozenset({StageState.ANALYSED, StageState.ABANDONED})


class StageBook(Book):
    """What the Store says about stages."""

    def add_stage(
        self,
        campaign_id: str,
        kind: str,
        plan: dict[str, Any],
        blueprints: Sequence[tuple[Blueprint, str]],
        at: float,
    ) -> StageRow:
        """Add the campaign's next stage and its blueprints (each with the sha256 of its client), all or nothing.

        Raises:
            Conflict: a blueprint's name is taken in this campaign, or the campaign is over.
        """
        with self._db.write() as session:
            campaign = fetch(session, CampaignTable, campaign_id, "campaign")
            if CampaignState(campaign.state) in FINAL:
                raise Conflict(f"campaign {campaign_id!r} is {campaign.state}: no stage is added")
            _refuse_taken_names(session, campaign_id, [b.name for b, _ in blueprints])
            ordinal = count_rows(session, StageTable, campaign_id) + 1
            stage = StageTable(
                id=f"{campaign_id}-s{ordinal}",
                campaign_id=campaign_id,
                ordinal=ordinal,
                kind=kind,
                state=StageState.PLANNED.value,
                plan=plan,
                plan_hash=content_hash(plan),
                created_at=at,
            )
            session.add(stage)
            session.flush()
            for blueprint, artifact_sha in blueprints:
                new_blueprint(session, stage, blueprint, artifact_sha, at)
            data = {"kind": kind, "plan_hash": stage.plan_hash, "blueprints": len(blueprints)}
            note(session, campaign_id, "stage_planned", stage.id, at, data=data)
            return _to_row(stage)

    def stages(self, campaign_id: str) -> list[StageRow]:
        """The campaign's stages in order."""
        with self._db.read() as session:
            found = session.exec(
                select(StageTable)
                .where(StageTable.campaign_id == campaign_id)
                .order_by(col(StageTable.ordinal))
            )
            return [_to_row(r) for r in found]

    def set_stage_state(
        self, stage_id: str, state: StageState, analysis: dict[str, Any] | None = None
    ) -> StageRow:
        """Move to ``state``; ``analysis`` None keeps what is there. Repeats are harmless.

        Raises:
            Conflict: the stage is analysed or abandoned, which is final.
        """
        at = self._clock.time()
        with self._db.write() as session:
            stage = fetch(session, StageTable, stage_id, "stage")
            before = StageState(stage.state)
            if before in DECIDED and state is not before:
                raise Conflict(f"stage {stage_id!r} is {before.value}, which is final")
            if state is not before:
                stage.state = state.value
                stage.decided_at = at if state in DECIDED else None
                note(session, stage.campaign_id, f"stage_{state.value}", stage_id, at)
            if analysis is not None:
                stage.analysis = analysis
            return _to_row(stage)


def _refuse_taken_names(session: Session, campaign_id: str, names: list[str]) -> None:
    taken = session.exec(
        select(BlueprintTable.name).where(BlueprintTable.campaign_id == campaign_id)
    ).all()
    twice = [name for name, count in Counter([*taken, *set(names)]).items() if count > 1]
    twice += [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Conflict(
            f"campaign {campaign_id!r} would have two blueprints named {twice[0]!r}",
            hint="give each blueprint of a campaign its own name",
        )


def _to_row(record: StageTable) -> StageRow:
    return StageRow.model_validate(record.model_dump())
