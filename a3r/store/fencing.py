"""The gate of every write that a worker makes: only the holder of the current fencing token passes."""

from __future__ import annotations

from typing import Any, NoReturn

from sqlmodel import Session, select

from a3r.core.errors import Conflict
from a3r.core.hashing import canonical_json
from a3r.core.types import AttemptState
from a3r.store.book import fetch, note
from a3r.store.tables import AttemptTable, EventTable


def hold(
    session: Session, attempt_id: str, token: int, at: float, *, what: str, payload: dict[str, Any]
) -> AttemptTable:
    """Return the attempt when ``token`` is its current one and it is not lost; otherwise keep ``payload`` as evidence and refuse.

    Raises:
        Conflict: the token is stale or the attempt was given up: the worker should stop it.
        NotFound: no such attempt.
    """
    attempt = fetch(session, AttemptTable, attempt_id, "attempt")
    lost = AttemptState(attempt.state) is AttemptState.LOST
    if lost or token <= 0 or token != attempt.fencing_token:
        why = "it was given up as lost" if lost else f"fencing token {token} is not current"
        refuse_late(session, attempt, token, at, what=what, payload=payload, why=why)
    return attempt


def holds(session: Session, attempt_id: str, token: int) -> bool:
    """Whether ``hold`` would let this token pass."""
    query = select(AttemptTable.state, AttemptTable.fencing_token)
    found = session.exec(query.where(AttemptTable.id == attempt_id)).first()
    return found is not None and found[0] != AttemptState.LOST.value and token == found[1] > 0


def refuse_late(
    session: Session,
    attempt: AttemptTable,
    token: int,
    at: float,
    *,
    what: str,
    payload: dict[str, Any],
    why: str,
) -> NoReturn:
    """Commit a ``late_result`` event (once for the same payload), then raise ``Conflict``."""
    refused = {"what": what, "why": why, "fencing_token": token, "payload": payload}
    _keep_once(session, attempt, refused, at)
    # The event must outlive the refusal, which undoes whatever is not committed.
    session.commit()
    raise Conflict(
        f"{what} of attempt {attempt.id!r} is not accepted: {why}",
        hint="stop this attempt; what it sent is kept as an event",
        attempt_id=attempt.id,
        fencing_token=token,
    )


def refuse_not_finite(value: Any, what: str) -> None:
    """Refuse NaN and infinity: a missing number is null.

    Raises:
        Conflict: there is one in ``value``.
    """
    try:
        canonical_json(value)
    except (ValueError, TypeError) as err:
        raise Conflict(
            f"{what} holds a value that JSON cannot: {err}",
            hint="numbers must be finite: send null for a missing one",
        ) from err


def _keep_once(session: Session, attempt: AttemptTable, refused: dict[str, Any], at: float) -> None:
    known = session.exec(
        select(EventTable).where(
            EventTable.attempt_id == attempt.id, EventTable.kind == "late_result"
        )
    ).all()
    if all(event.data != refused for event in known):
        note(
            session,
            attempt.campaign_id,
            "late_result",
            attempt.id,
            at,
            actor="worker",
            attempt_id=attempt.id,
            data=refused,
        )
