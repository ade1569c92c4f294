"""Looks after all pools: sees what became of their jobs, asks for workers when runs wait, and takes back what nobody needs.

Level-triggered like the leader: everything is read from the store, so it may be killed at any line. A job is on file before the
engine hears of it and is named by us, so one whose answer was lost is found again instead of asked for twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from a3r.core.errors import NotFound, PoolError, PoolRefused, PoolUnavailable
from a3r.core.ids import new_token
from a3r.core.pools import (
    EngineJob,
    PoolEngine,
    PoolJobState,
    PoolState,
    ticket_name,
    token_name,
)
from a3r.core.ports import Clock
from a3r.core.types import AttemptState, WorkerState
from a3r.pools.command import job_ask
from a3r.pools.demand import Plan, Supply, plan
from a3r.pools.pauses import Pauses, failure_words, may_ask
from a3r.store.rows import PoolJobRow, PoolRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)

COMING = (PoolJobState.ASKED, PoolJobState.QUEUED, PoolJobState.STARTING)
SPARE_S = 60.0
"""A job that waits at the engine is withdrawn when nothing has needed it and it is at least so old."""
RECENT_S = 24 * 3600.0
"""Jobs that were over before this are history."""
SILENT_S = 30.0
"""A worker that said nothing for so long counts for nothing."""


@dataclass
class PoolKeeper:
    """``tend`` is called again and again, from one thread: engines may take their time."""

    store: Store
    clock: Clock
    engine_of: Callable[[PoolRow], PoolEngine]
    heard: Mapping[str, float]
    """Worker id -> when the hub last heard of it."""
    local_url: Callable[[], str]
    """Where the hub listens on this machine."""
    pauses: Pauses = field(default_factory=Pauses)

    def tend(self) -> None:
        """One look at every pool. Never raises for what an engine does or does not."""
        pools = self.store.pools()
        if not pools:
            return
        for pool in pools:
            self._guarded(pool, self._follow)
        self._ask(self.store.pools())

    def _guarded(self, pool: PoolRow, work: Callable[[PoolRow], None]) -> None:
        now = self.clock.time()
        if not self.pauses.is_over(pool.name, now):
            return
        try:
            work(pool)
        except PoolUnavailable as error:
            self._pause(pool, f"the engine does not answer: {error.message}", now)
        except PoolRefused as error:
            self._pause(pool, str(error).replace("\n", "; "), now)
        except Exception as error:
            logger.exception("pool %s: a look failed", pool.name)
            self._pause(pool, f"{type(error).__name__}: {error}", now)
        else:
            self.pauses.worked(pool.name)

    def _pause(self, pool: PoolRow, why: str, now: float) -> None:
        pause_s = self.pauses.failed(pool.name, now)
        if pool.detail != why:
            logger.warning("pool %s: %s; next look in %.0f s", pool.name, why, pause_s)
        self.store.say_of_pool(pool.name, why)

    # -- what became of it ------------------------------------------------------------------------------------

    def _follow(self, pool: PoolRow) -> None:
        jobs = self.store.pool_jobs(pool.name, live=True)
        engine = self.engine_of(pool) if jobs else None
        if engine is not None:
            told = engine.look({job.id: job.external_id for job in jobs})
            for job in jobs:
                self._settle(pool, engine, job, told.get(job.id))
        self._take_back(pool)
        if pool.state is not PoolState.ACTIVE:
            self._wind_down(pool)

    def _take_back(self, pool: PoolRow) -> None:
        """What the workers of jobs that are over still hold: a new attempt need not wait for ``lost_after_s``."""
        over = {j.worker_id: j for j in self._recent(pool) if j.ended_at is not None}
        silent = {
            a.worker_id
            for a in self.store.held_attempts()
            if a.state is AttemptState.UNREACHABLE and a.worker_id in over
        }
        for worker in silent - {None}:
            job = over[worker]
            why = f"the cluster ended its worker's job {job.external_id}: {job.detail}"
            self.store.take_back(str(worker), why, self.clock.time())

    def _recent(self, pool: PoolRow) -> list[PoolJobRow]:
        return self.store.pool_jobs(pool.name, since=self.clock.time() - RECENT_S)

    def _settle(
        self, pool: PoolRow, engine: PoolEngine, job: PoolJobRow, told: EngineJob | None
    ) -> None:
        now = self.clock.time()
        if told is None:
            if job.external_id:  # the engine had it and has it no more
                self._over(job, PoolJobState.FAILED, "the engine does not know the job any more")
            elif pool.state is PoolState.ACTIVE:
                self._submit(pool, engine, job)  # what was on file and never got there
            else:
                self._over(job, PoolJobState.ENDED, "withdrawn before it was asked for")
            return
        if told.state in (PoolJobState.ENDED, PoolJobState.FAILED):
            self._ended(job, told)
            return
        if job.state is PoolJobState.WORKING:
            return
        late = now - job.submitted_at > pool.options.start_timeout_s
        if told.state is PoolJobState.STARTING and job.state is PoolJobState.STARTING and late:
            engine.stop([job.external_id or job.id])
            why = f"its worker did not come to the hub within {pool.options.start_timeout_s:g} s"
            self._over(job, PoolJobState.FAILED, f"{why}: can the machine reach the hub?")
            return
        external = job.external_id or told.external_id or job.id
        self.store.note_pool_job(job.id, told.state, now, detail=told.detail, external_id=external)

    def _ended(self, job: PoolJobRow, told: EngineJob) -> None:
        held = self.store.attempts_of_worker(job.worker_id) if job.worker_id else []
        state, detail = told.state, told.detail
        if state is PoolJobState.ENDED and job.worker_id is None:
            state, detail = PoolJobState.FAILED, f"its worker never came: {detail}"
        self._over(job, state, detail)
        if held:
            ids = ", ".join(a.id for a in held)
            logger.warning("pool %s: job %s ended and had %s", job.pool, job.external_id, ids)

    def _over(self, job: PoolJobRow, state: PoolJobState, detail: str) -> None:
        now = self.clock.time()
        self.store.note_pool_job(job.id, state, now, detail=detail)
        for name in (ticket_name(job.id), token_name(job.id)):
            with contextlib.suppress(NotFound):
                self.store.revoke_worker_token(name, now)
        if state is PoolJobState.FAILED:
            logger.warning("pool %s: job %s failed: %s", job.pool, job.external_id, detail)

    def _wind_down(self, pool: PoolRow) -> None:
        jobs = self.store.pool_jobs(pool.name, live=True)
        if not jobs:
            self.store.set_pool_state(pool.name, PoolState.REMOVED, self.clock.time())
            return
        self._withdraw(pool, [j for j in jobs if j.state in COMING], "the pool was removed")
        if pool.state is PoolState.ENDING:
            # Their workers report what they had before they go; the end is seen as any other.
            self.engine_of(pool).stop([j.external_id for j in jobs if j.state not in COMING])
        for job in jobs:
            if job.worker_id is not None:
                self.store.set_worker_state(job.worker_id, WorkerState.REMOVED)

    def _withdraw(self, pool: PoolRow, jobs: list[PoolJobRow], why: str) -> None:
        if jobs:
            self.engine_of(pool).stop([j.external_id or j.id for j in jobs])
        for job in jobs:
            self._over(job, PoolJobState.ENDED, why)

    # -- what is asked for ------------------------------------------------------------------------------------

    def _ask(self, pools: list[PoolRow]) -> None:
        now = self.clock.time()
        active = [p for p in pools if p.state is PoolState.ACTIVE]
        supplies = [self._supply(p, now) for p in active]
        alive = {w for w, at in dict(self.heard).items() if now - at <= SILENT_S}
        rooms = [r for r in self.store.rooms() if r.worker_id in alive]
        wanted = plan(self.store.waiting(), rooms, supplies, now)
        for pool in active:
            self._guarded(pool, lambda p: self._carry_out(p, wanted, now))

    def _supply(self, pool: PoolRow, now: float) -> Supply:
        jobs = self._recent(pool)
        live = [j for j in jobs if j.ended_at is None]
        free = max(0, pool.options.max_workers - len(live))
        rest = may_ask(_since_change(pool, jobs), now)
        quiet = self.pauses.is_over(pool.name, now)
        return Supply(
            name=pool.name,
            slots=pool.options.slots,
            gpus=pool.options.gpus,
            coming=sum(j.state in COMING for j in live),
            may_ask=min(free, rest) if quiet else 0,
        )

    def _carry_out(self, pool: PoolRow, wanted: Plan, now: float) -> None:
        count = wanted.ask[pool.name]
        engine = self.engine_of(pool) if count else None
        for _ in range(count):
            if engine is not None:
                self._submit(pool, engine, self.store.add_pool_job(pool.name, now))
        self._spare(pool, wanted.spare[pool.name], now)
        words = failure_words(_since_change(pool, self._recent(pool)), now)
        if not words and wanted.unfit:
            words = f"{wanted.unfit} waiting attempts need more slots or GPUs than any pool's worker has"
        self.store.say_of_pool(pool.name, words)

    def _submit(self, pool: PoolRow, engine: PoolEngine, job: PoolJobRow) -> None:
        ticket, now = new_token(), self.clock.time()
        with contextlib.suppress(NotFound):  # of a submission that did not get through
            self.store.revoke_worker_token(ticket_name(job.id), now)
        self.store.add_worker_token(ticket_name(job.id), ticket, now)
        try:
            external = engine.submit(job_ask(pool, job.id, ticket, self.local_url()))
        except PoolUnavailable:
            raise  # it may have got there: the next look finds out
        except PoolError as error:
            self._over(job, PoolJobState.FAILED, error.message)
            raise
        self.store.note_pool_job(job.id, PoolJobState.QUEUED, now, external_id=external)
        logger.info("pool %s: asked for a worker, job %s", pool.name, external)

    def _spare(self, pool: PoolRow, count: int, now: float) -> None:
        """Withdraw the newest of what waits at the engine and nobody needs; a job that runs ends by itself when idle."""
        jobs = [
            j
            for j in self.store.pool_jobs(pool.name, live=True)
            if j.state is PoolJobState.QUEUED and now - j.submitted_at > SPARE_S
        ]
        if count and jobs:
            self._withdraw(pool, jobs[-count:], "withdrawn: nothing waits for it any more")


def _since_change(pool: PoolRow, jobs: list[PoolJobRow]) -> list[PoolJobRow]:
    """A person who changed the pool wants it tried at once: what failed before says nothing any more."""
    return [j for j in jobs if j.submitted_at >= pool.updated_at]
