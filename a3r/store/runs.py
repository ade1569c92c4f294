"""Runs (blueprint x seed) and the reconciler's view of what is left to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import bindparam, text
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, func, or_, select

from a3r.blueprints.model import Blueprint
from a3r.core.errors import Conflict
from a3r.core.ids import new_id
from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    TERMINAL_RUNS,
    AttemptState,
    FailureClass,
    RunState,
)
from a3r.store.attempts import cancel_queued, live_attempt
from a3r.store.book import Book, columns_of, count_rows, fetch, note
from a3r.store.rows import AttemptRow, PendingWork, RunRow
from a3r.store.tables import AttemptTable, BlueprintTable, RunTable


class RunBook(Book):
    """What the Store says about runs."""

    def ensure_runs(self, blueprint_id: str) -> list[RunRow]:
        """Create the runs that are missing, one a seed, and return all of the blueprint's in order of creation. Safe to repeat."""
        at = self._clock.time()
        with self._db.write() as session:
            blueprint = fetch(session, BlueprintTable, blueprint_id, "blueprint")
            query = (
                select(RunTable)
                .where(RunTable.blueprint_id == blueprint_id)
                .order_by(col(RunTable.position))
            )
            found = list(session.exec(query).all())
            known = {run.seed for run in found}
            position = count_rows(session, RunTable, blueprint.campaign_id)
            for seed in Blueprint.model_validate(blueprint.body).seeds:
                if seed not in known:
                    known.add(seed)
                    found.append(_new_run(blueprint, seed, position, at))
                    position += 1
            session.add_all(found)
            session.flush()
            return [_to_row(run) for run in found]

    def runs(self, campaign_id: str) -> list[RunRow]:
        """The campaign's runs in order of creation."""
        with self._db.read() as session:
            return _runs(session, campaign_id)

    def run(self, run_id: str) -> RunRow:
        """One run.

        Raises:
            NotFound: there is none with this id.
        """
        with self._db.read() as session:
            return _to_row(fetch(session, RunTable, run_id, "run"))

    def set_run_state(
        self,
        run_id: str,
        state: RunState,
        failure: FailureClass | None = None,
        reason: str = "",
    ) -> RunRow:
        """Move a run to ``state``; a final state cancels an attempt that is only queued. Repeats are harmless.

        Raises:
            Conflict: the run is final already, ``succeeded`` is asked for (only an accepted attempt gives that), or an
                attempt is under way.
        """
        at = self._clock.time()
        with self._db.write() as session:
            run = fetch(session, RunTable, run_id, "run")
            before = RunState(run.state)
            if before is state:
                return _to_row(run)
            if before in TERMINAL_RUNS:
                raise Conflict(f"run {run_id!r} is {before.value}, which is final")
            if state is RunState.SUCCEEDED:
                raise Conflict(
                    f"run {run_id!r} succeeds only with an attempt whose results are complete"
                )
            if state in TERMINAL_RUNS:
                _end_queued(session, run_id, reason or f"run {state.value}", at)
            run.state, run.reason = state.value, reason
            run.failure = failure.value if failure else None
            data = {"failure": run.failure, "reason": reason}
            note(session, run.campaign_id, f"run_{state.value}", run_id, at, data=data)
            return _to_row(run)

    def pending_work(self, campaign_id: str) -> PendingWork:
        """One consistent view of what runs, what waits and when a worker was last heard."""
        with self._db.read() as session:
            given = {"campaign": campaign_id}
            found = session.connection().execute(_UNSETTLED, given).mappings()
            attempts = [AttemptRow.model_validate(dict(row)) for row in found]
            by_state: dict[AttemptState, list[AttemptRow]] = {}
            for attempt in attempts:
                by_state.setdefault(attempt.state, []).append(attempt)
            live = {a.run_id for a in attempts if a.state not in TERMINAL_ATTEMPTS}
            beats = select(func.max(AttemptTable.heartbeat_at))
            return PendingWork(
                runs_without_live_attempt=[
                    run for run in _runs(session, campaign_id, but=_OVER) if run.id not in live
                ],
                attempts_by_state=by_state,
                last_heartbeat_at=session.exec(
                    beats.where(AttemptTable.campaign_id == campaign_id)
                ).one(),
            )


def _new_run(blueprint: BlueprintTable, seed: int, position: int, at: float) -> RunTable:
    return RunTable(
        id=new_id("run", at),
        campaign_id=blueprint.campaign_id,
        blueprint_id=blueprint.id,
        position=position,
        seed=seed,
        state=RunState.PENDING.value,
    )


def _runs(session: Session, campaign_id: str, but: Collection[str] = ()) -> list[RunRow]:
    given = {"campaign": campaign_id, "but": list(but)}
    return _ROWS.validate_json(session.connection().execute(_AS_JSON, given).scalar_one())


def _end_queued(session: Session, run_id: str, reason: str, at: float) -> None:
    live = live_attempt(session, run_id)
    if live is None:
        return
    if AttemptState(live.state) is not AttemptState.QUEUED:
        raise Conflict(
            f"run {run_id!r} has an attempt under way ({live.id!r} is {live.state})",
            hint="ask the attempt to stop first, or mark it lost",
        )
    cancel_queued(session, live, reason, at)


def _to_row(record: RunTable) -> RunRow:
    return RunRow.model_validate(record.model_dump(exclude={"position"}))


def _unsettled() -> Any:
    """Attempts of a campaign whose run has no end yet, or that have none themselves."""
    over = select(RunTable.id).where(
        RunTable.id == AttemptTable.run_id, col(RunTable.state).in_(_OVER)
    )
    live = col(AttemptTable.state).not_in([state.value for state in TERMINAL_ATTEMPTS])
    return (
        sql_select(*columns_of(AttemptTable, without="queue_order"))
        .where(col(AttemptTable.campaign_id) == bindparam("campaign"))
        .where(or_(live, ~over.exists()))
        .order_by(col(AttemptTable.queue_order))
    )


_OVER = [state.value for state in TERMINAL_RUNS]
_UNSETTLED = _unsettled()
_ROWS = TypeAdapter(list[RunRow])
# Thousands of rows as one value: SQLite makes the JSON and pydantic the rows, while other threads of Python go on. Row by row,
# each would have to wait for its turn again.
_AS_JSON = text(
    """
    SELECT json_group_array(json_object(
        'id', id, 'campaign_id', campaign_id, 'blueprint_id', blueprint_id, 'seed', seed, 'state', state,
        'accepted_attempt', accepted_attempt, 'failure', failure, 'reason', reason))
    FROM (SELECT * FROM runs WHERE campaign_id = :campaign AND state NOT IN :but ORDER BY position)
    """
).bindparams(bindparam("but", expanding=True))
