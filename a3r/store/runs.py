"""Runs (blueprint x seed) and the reconciler's view of what is left to do."""

from __future__ import annotations

from sqlmodel import Session, col, select

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
from a3r.store.book import Book, count_rows, fetch, note, table_rows
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
            for seed in Blueprint.model_validate(blueprint.body).seeds:
                if seed not in known:
                    known.add(seed)
                    found.append(_new_run(session, blueprint, seed, at))
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
            attempts = [
                AttemptRow.model_validate(found)
                for found in table_rows(
                    session, AttemptTable, campaign_id, order="queue_order", without="queue_order"
                )
            ]
            by_state: dict[AttemptState, list[AttemptRow]] = {}
            for attempt in attempts:
                by_state.setdefault(attempt.state, []).append(attempt)
            live = {a.run_id for a in attempts if a.state not in TERMINAL_ATTEMPTS}
            waiting = [
                run
                for run in _runs(session, campaign_id)
                if run.state not in TERMINAL_RUNS and run.id not in live
            ]
            beats = [a.heartbeat_at for a in attempts if a.heartbeat_at is not None]
            return PendingWork(
                runs_without_live_attempt=waiting,
                attempts_by_state=by_state,
                last_heartbeat_at=max(beats, default=None),
            )


def _new_run(session: Session, blueprint: BlueprintTable, seed: int, at: float) -> RunTable:
    run = RunTable(
        id=new_id("run", at),
        campaign_id=blueprint.campaign_id,
        blueprint_id=blueprint.id,
        position=count_rows(session, RunTable, blueprint.campaign_id),
        seed=seed,
        state=RunState.PENDING.value,
    )
    session.add(run)
    session.flush()
    return run


def _runs(session: Session, campaign_id: str) -> list[RunRow]:
    found = table_rows(session, RunTable, campaign_id, order="position", without="position")
    return [RunRow.model_validate(run) for run in found]


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
