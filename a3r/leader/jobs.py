"""Does the leader's long work: takes filed jobs one by one, outside of ticks, and writes down what became of them.

A handler may be killed at any line and is then called again from its beginning: its calls of the language model replay from the
journal, everything else that it does must be harmless to do twice.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from a3r.core.errors import A3RError, ModelUnavailable, StoreError
from a3r.core.hashing import canonical_json
from a3r.core.llm import LanguageModel
from a3r.core.ports import Clock
from a3r.core.types import JobState
from a3r.core.workspace import Workspace
from a3r.leader.llm.budget import Limits
from a3r.leader.llm.desk import Desk
from a3r.leader.worked import minutes_are_up
from a3r.store.rows import CampaignRow, JobRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 5.0
MAX_WAIT_S = 600.0
"""Back-off between two tries while the provider does not answer; it may go on for hours."""
MAX_ASKED_WAIT_S = 3600.0
"""The longest ``Retry-After`` that is believed."""
STORE_WAIT_S = 5.0
LOOK_S = 1.0
"""How often a thread without work looks for a job whose time has come; a new job wakes it at once."""
GAP_S = 0.25
"""Between two looks: writes come in bursts."""


ReadPage = Callable[[str], str]
"""(http address) -> the page's text; raises A3RError."""


@dataclass(frozen=True)
class JobContext:
    """What a handler works with."""

    store: Store
    clock: Clock
    workspace: Workspace
    desk: Desk
    job: JobRow
    campaign: CampaignRow
    read_page: ReadPage | None = None
    """None: addresses are not read."""

    @property
    def goal_dir(self) -> Path:
        """The goal's folder."""
        return Path(self.campaign.goal_dir)


Handler = Callable[[JobContext], dict[str, Any]]
"""Returns the job's result as JSON. What it raises: ``ModelUnavailable`` makes the job wait, anything else makes it fail."""


@dataclass
class JobRunner:
    """Thread-safe; several threads may call ``run_one``."""

    store: Store
    clock: Clock
    workspace: Workspace
    model: LanguageModel | None
    handlers: Mapping[str, Handler]
    fallbacks: Sequence[LanguageModel] = ()
    """Asked in order when ``model`` gives no reply."""
    read_page: ReadPage | None = None
    _stranded: list[str] = field(default_factory=list[str])

    def recover(self) -> None:
        """Once, before the first job: what ran when the last daemon ended is queued again, its lost calls are settled."""
        self.store.lose_calls()
        count = self.store.recover_jobs()
        if count:
            logger.info("%d job(s) of the last daemon are done again from their journal.", count)

    def run_one(self) -> bool:
        """Do one job that is due; False when there was none. Raises StoreError only."""
        while self._stranded:
            self._queue_again(self._stranded[-1])
            self._stranded.pop()
        job = self.store.take_job(self.clock.time())
        if job is None:
            return False
        try:
            self._do(job)
        except StoreError:
            self._stranded.append(job.id)
            raise
        return True

    def run_all(self, limit: int = 100) -> int:
        """Do jobs until none is due, at most ``limit``; return how many. For tests and tools."""
        return next((done for done in range(limit) if not self.run_one()), limit)

    def context(self, job: JobRow) -> JobContext:
        """What the job's handler is given."""
        campaign = self.store.campaign(job.campaign_id)
        budget = cast("dict[str, Any]", campaign.goal_spec.get("budget") or {})

        def time_is_up() -> bool:
            now = self.clock.time()
            current = self.store.campaign(job.campaign_id)
            return minutes_are_up(self.store, current, budget.get("wall_clock_min"), now)

        limits = Limits.of(budget, time_is_up)
        scope = job.id if job.round == 1 else f"{job.id}@{job.round}"
        desk = Desk(
            self.store, self.model, campaign.id, limits, scope=scope, fallbacks=self.fallbacks
        )
        return JobContext(
            self.store, self.clock, self.workspace, desk, job, campaign, self.read_page
        )

    def _do(self, job: JobRow) -> None:
        context = self.context(job)
        try:
            handler = self.handlers.get(job.kind)
            if handler is None:
                raise A3RError(f"nobody knows how to do a job of kind {job.kind!r}")  # noqa: TRY301
            result = handler(context)
            canonical_json(result)  # what can not be written down fails here, not in the database
        except StoreError:
            raise
        except ModelUnavailable as error:
            self._wait(job, error, moved=context.desk.bought > 0)
        except A3RError as error:
            logger.warning("job %s failed: %s", job.id, error.message)
            self._fail(job, error)
        except Exception as error:
            logger.exception("job %s failed unexpectedly", job.id)
            self._fail(job, A3RError(f"{type(error).__name__}: {error}"))
        else:
            self.store.settle_job(job.id, JobState.DONE, result=result)

    def _wait(self, job: JobRow, error: ModelUnavailable, *, moved: bool) -> None:
        tries = 0 if moved else job.tries
        asked = error.details.get("retry_after_s")
        wait_s = min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** min(tries, 20))
        if isinstance(asked, (int, float)):
            wait_s = max(wait_s if tries else 0.0, min(float(asked), MAX_ASKED_WAIT_S))
        self.store.settle_job(
            job.id,
            JobState.WAITING,
            detail=error.message,
            not_before=self.clock.time() + wait_s,
            moved=moved,
        )

    def _fail(self, job: JobRow, error: A3RError) -> None:
        told = json.loads(json.dumps(error.envelope()["error"], default=str))
        self.store.settle_job(job.id, JobState.FAILED, detail=error.message, result=told)

    def _queue_again(self, job_id: str) -> None:
        later = self.clock.time() + STORE_WAIT_S
        if self.store.job(job_id).state is JobState.RUNNING:
            self.store.settle_job(job_id, JobState.QUEUED, not_before=later)


class JobThreads:
    """The runner's threads in the daemon."""

    def __init__(self, runner: JobRunner, count: int = 2) -> None:
        """``count`` jobs at once: a slow provider of one campaign does not hold up another."""
        self._runner = runner
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"jobs-{n}", daemon=True) for n in range(count)
        ]

    @property
    def with_model(self) -> bool:
        """Whether a language model is set."""
        return self._runner.model is not None

    def start(self) -> None:
        """Recover, then begin."""
        self._runner.recover()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Begin no further job and wait a little for those under way; a call that is left behind is settled at the next start."""
        self._over.set()
        self._runner.store.changed.notify()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s / len(self._threads))

    def _run(self) -> None:
        changed = self._runner.store.changed
        while not self._over.is_set():
            seen = changed.count
            try:
                worked = self._runner.run_one()
            except StoreError as error:
                logger.warning("jobs wait for the database: %s", error.message)
                self._over.wait(STORE_WAIT_S)
                continue
            except Exception:
                logger.exception("a job could not be written down")
                self._over.wait(STORE_WAIT_S)
                continue
            if not worked and not self._over.wait(GAP_S):
                changed.wait(seen, LOOK_S)
