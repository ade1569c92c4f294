"""What the parts of the Store share: the database, the clock, and look-ups that fail with a helpful error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import bindparam, inspect
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, SQLModel, col, func, select

from a3r.core.errors import NotFound
from a3r.core.ports import Clock
from a3r.store.engine import Database
from a3r.store.tables import CounterTable, EventTable

RecordT = TypeVar("RecordT", bound=SQLModel)
LISTS = {
    "campaign": "`a3r campaign list` shows what there is",
    "blueprint": "`a3r blueprint list CAMPAIGN` shows what there is",
    "run": "`a3r run list CAMPAIGN` shows what there is",
}
"""Noun -> where a person finds the names; the other nouns have no list of their own."""


class Book:
    """One noun's methods; ``a3r.store.store.Store`` is made of them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    @property
    def folder(self) -> Path:
        """Where the database lies; ``logs/`` and ``artifacts/`` are beside it."""
        return self._db.path.parent


def fetch(session: Session, table: type[RecordT], key: str, noun: str) -> RecordT:
    """Return the record with this primary key.

    Raises:
        NotFound: there is none; the nearest id is suggested.
    """
    record = session.get(table, key)
    if record is None:
        identity: Any = inspect(table).primary_key[0]
        raise not_found(noun, key, session.exec(select(identity)).all())
    return record


def not_found(noun: str, reference: str, known: Iterable[str]) -> NotFound:
    """The error for a name that matches nothing, with the nearest known one as hint."""
    names = list(known)
    near = difflib.get_close_matches(reference, names, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif not names:
        hint = f"there is no {noun} yet"
    else:
        hint = LISTS.get(noun, "")
    return NotFound(f"no {noun} {reference!r}", hint=hint, reference=reference)


def next_count(session: Session, name: str) -> int:
    """Add one to the counter and return it (1 the first time); never twice the same, also over restarts."""
    return session.connection().execute(_COUNT, {"name": name}).scalar_one()


def count_rows(session: Session, table: type[SQLModel], campaign_id: str) -> int:
    """How many records of the table belong to the campaign."""
    owner: Any = getattr(table, "campaign_id")  # noqa: B009  (SQLModel itself declares no such column)
    return session.exec(select(func.count()).select_from(table).where(owner == campaign_id)).one()


def columns_of(table: type[SQLModel], *, without: str = "") -> list[Any]:
    """The table's columns in order, one left out: to ask for plain values.

    For what is asked often or of many: to make an object of the mapper for each row takes most of the time.
    """
    columns: Any = getattr(table, "__table__").c  # noqa: B009  (SQLModel itself declares no such attribute)
    return [column for column in columns if column.name != without]


def note(
    session: Session,
    campaign_id: str,
    kind: str,
    subject: str,
    at: float,
    *,
    actor: str = "store",
    attempt_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> EventTable:
    """Add one event within the transaction of the change that it tells of."""
    event = EventTable(
        campaign_id=campaign_id,
        attempt_id=attempt_id,
        at=at,
        actor=actor,
        kind=kind,
        subject=subject,
        data=data or {},
    )
    session.add(event)
    return event


_NEW = insert(CounterTable).values(name=bindparam("name"), value=1)
_COUNT = _NEW.on_conflict_do_update(
    index_elements=["name"], set_={"value": col(CounterTable.value) + 1}
).returning(col(CounterTable.value))
