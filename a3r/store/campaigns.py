"""Campaigns: start, find, move from state to state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.ids import new_campaign_id
from a3r.core.types import CampaignState, ReviewMode
from a3r.store.book import Book, fetch, not_found, note
from a3r.store.rows import CampaignRow
from a3r.store.tables import CampaignTable

FINAL = frozenset({CampaignState.DONE, CampaignState.STOPPED})
DEFAULT_CAPACITY = 1


@dataclass(frozen=True, slots=True)
class NewCampaign:
    """A campaign before it is filed."""

    name: str
    goal_text: str
    goal_dir: str
    goal_spec: dict[str, Any]
    review_mode: ReviewMode
    planner: str


class CampaignBook(Book):
    """What the Store says about campaigns."""

    def create_campaign(
        self,
        name: str,
        goal_text: str,
        goal_dir: str,
        goal_spec: dict[str, Any],
        review_mode: ReviewMode,
        planner: str,
        at: float,
    ) -> CampaignRow:
        """Add a campaign in state ``planning``; ``goal_spec["capacity"]`` (default 1) bounds its attempts at once."""
        new = NewCampaign(name, goal_text, goal_dir, goal_spec, review_mode, planner)
        with self._db.write() as session:
            return to_row(insert_campaign(session, new, at))

    def campaigns(self) -> list[CampaignRow]:
        """All campaigns, oldest first."""
        with self._db.read() as session:
            order = (col(CampaignTable.created_at), col(CampaignTable.id))
            return [to_row(r) for r in session.exec(select(CampaignTable).order_by(*order))]

    def campaign(self, reference: str) -> CampaignRow:
        """Find by id, by the start of an id, or by name.

        Raises:
            NotFound: nothing matches; the nearest is suggested.
            Conflict: several match.
        """
        with self._db.read() as session:
            return to_row(find_campaign(session, reference))

    def set_campaign_state(
        self,
        campaign_id: str,
        state: CampaignState,
        failure: str | None = None,
        report_path: str | None = None,
    ) -> CampaignRow:
        """Move to ``state``; ``failure`` replaces the old one (None clears), ``report_path`` None keeps. Repeats are harmless.

        Raises:
            Conflict: the campaign is done or stopped, which is final.
        """
        at = self._clock.time()
        with self._db.write() as session:
            record = fetch(session, CampaignTable, campaign_id, "campaign")
            before = CampaignState(record.state)
            if before in FINAL and state is not before:
                raise Conflict(
                    f"campaign {campaign_id!r} is {before.value}, it cannot become {state.value}",
                    hint="start a new campaign from the same goal",
                )
            record.state, record.failure = state.value, failure
            record.report_path = report_path or record.report_path
            record.updated_at = at
            if state is not before:
                data = {"before": before.value, "failure": failure}
                note(session, campaign_id, f"campaign_{state.value}", campaign_id, at, data=data)
            return to_row(record)

    def request_stop(self, campaign_id: str) -> CampaignRow:
        """Ask for a stop: from now on nothing of the campaign is claimed. Safe to call twice; a final campaign stays as it is."""
        at = self._clock.time()
        with self._db.write() as session:
            record = fetch(session, CampaignTable, campaign_id, "campaign")
            if record.stop_requested_at is None and CampaignState(record.state) not in FINAL:
                record.stop_requested_at = record.updated_at = at
                note(session, campaign_id, "stop_requested", campaign_id, at)
            return to_row(record)


def insert_campaign(session: Session, new: NewCampaign, at: float) -> CampaignTable:
    """Add a campaign in state ``planning``, with its first event, as a part of the caller's transaction."""
    record = CampaignTable(
        id=_unused_id(session, new.name),
        name=new.name,
        state=CampaignState.PLANNING.value,
        goal_text=new.goal_text,
        goal_dir=new.goal_dir,
        goal_spec=new.goal_spec,
        review_mode=new.review_mode.value,
        planner=new.planner,
        capacity=max(1, int(new.goal_spec.get("capacity") or DEFAULT_CAPACITY)),
        created_at=at,
        updated_at=at,
    )
    session.add(record)
    session.flush()
    note(session, record.id, "campaign_created", record.id, at, data={"name": new.name})
    return record


def find_campaign(session: Session, reference: str) -> CampaignTable:
    """See ``CampaignBook.campaign``."""
    exact = session.get(CampaignTable, reference)
    if exact is not None:
        return exact
    records = session.exec(select(CampaignTable)).all()
    found = [r for r in records if r.name == reference] or [
        r for r in records if reference and r.id.startswith(reference)
    ]
    if not found:
        raise not_found("campaign", reference, [n for r in records for n in (r.id, r.name)])
    if len(found) > 1:
        raise Conflict(
            f"{len(found)} campaigns match {reference!r}",
            hint=f"give the whole id of one: {', '.join(r.id for r in found)}",
        )
    return found[0]


def to_row(record: CampaignTable) -> CampaignRow:
    """Detach."""
    return CampaignRow.model_validate(record.model_dump())


def _unused_id(session: Session, name: str) -> str:
    while True:
        found = new_campaign_id(name)
        if session.get(CampaignTable, found) is None:
            return found
