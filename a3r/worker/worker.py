"""The worker: claims attempts while slots are free, runs each in a thread, renews leases, sends evidence up.

Training never waits for the hub: while it is away, attempts go on and their evidence stays on disk. Ending the worker
leaves its attempts running; the next worker of the workspace takes them up.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from a3r.core.clock import SystemClock
from a3r.core.errors import A3RError, Conflict
from a3r.core.ports import Clock, Hub, Terminal
from a3r.core.presence import Presence
from a3r.core.types import FailureClass, WorkerState
from a3r.core.wire import (
    AttemptReport,
    AttemptSpec,
    ClaimRequest,
    Command,
    FinishReport,
    HeartbeatRequest,
    WorkerRegistration,
)
from a3r.worker.answers import answer
from a3r.worker.attempt import AttemptRunner
from a3r.worker.contact import Contact
from a3r.worker.fitness import disk_trouble
from a3r.worker.folder import AttemptFolder
from a3r.worker.job import CALM_TICKS, MOST_TICKS_APART, Job, WorkerSettings
from a3r.worker.processes import Launcher, sweep
from a3r.worker.repair import AttemptOver
from a3r.worker.supervisor import NONCE
from a3r.worker.uplink import AttemptUplink

logger = logging.getLogger(__name__)

IDLE_S = 0.5
"""Between two looks while there are no free slots."""
UPLINK_S = 1.0
CLAIM_WAIT_S = 2.0
"""Short, because a worker that is told to end waits for the answer to its last claim: an attempt in it must not be lost."""
MAX_TICK_FAILURES = 10
"""Ticks in a row that raise before the attempt is ended."""
MIN_HEARTBEAT_GAP_S = 0.5
MOST_HEARTBEAT_GAP_S = 10.0
"""While the hub is away. Short of a lease: what runs here should not be unreachable for longer than the hub was."""
REPORT_S = 5.0


class Worker:
    """Threads: one claims, one beats, one sends, one for each running attempt."""

    def __init__(
        self,
        settings: WorkerSettings,
        hub: Hub,
        terminal: Terminal | None,
        environ: Mapping[str, str],
        clock: Clock | None = None,
    ) -> None:
        """``environ`` is the worker's own environment; its processes get a few names of it, never a secret."""
        self.settings, self._hub = settings, hub
        self._clock = clock or SystemClock()
        self._launcher = Launcher(terminal, environ)
        self._jobs: dict[str, Job] = {}
        self._guard = threading.Lock()
        self._idle_since = self._clock.monotonic()
        self._ending, self._full = threading.Event(), threading.Event()
        self._news = threading.Event()
        """Set when there is evidence that should not wait for the next pass."""
        self._hub_is_back = threading.Event()
        self._registered = False
        self._unwelcome = False
        """The hub refused its registration: it speaks only of attempts that it has."""
        self.wanted = WorkerState.ACTIVE
        """What a person wants of this worker, as the hub last said."""
        self._heartbeat_s = 2.0
        self._epoch = ""
        self._trouble = ""
        self._threads: list[threading.Thread] = []

    @property
    def runs(self) -> Path:
        """Folder of the attempts' folders."""
        return self.settings.home / "runs"

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up unfinished attempts of this workspace, then begin to work; returns at once."""
        self.adopt()
        for name in ("claim", "heartbeat", "uplink"):
            self._spawn(name)

    def _spawn(self, name: str) -> None:
        loop = getattr(self, f"_{name}_forever")
        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def adopt(self) -> None:
        """Take up every attempt in ``runs/`` whose end the hub does not know."""
        for path in sorted(self.runs.glob("*/attempt.json")):
            folder = AttemptFolder(path.parent)
            try:
                self._take(folder, adopted=True)
            except (OSError, ValueError):
                logger.exception(
                    "%s: its folder cannot be read; it is left alone", folder.path.name
                )

    def leave(self, timeout_s: float = 10.0) -> None:
        """Stop working and leave the attempts running. Waits for a claim that is under way."""
        self._ending.set()
        self._news.set()
        self._hub_is_back.set()
        for job in self._all_jobs():
            job.endings.wake()
        ends = time.monotonic() + timeout_s
        jobs = [job.thread for job in self._all_jobs() if job.thread is not None]
        for thread in [*self._threads, *jobs]:
            thread.join(max(0.1, ends - time.monotonic()))
        for job in self._all_jobs():
            job.runner.close()

    def claim_no_more(self) -> None:
        """Take no further attempts; a claim that is under way is still accepted."""
        self._full.set()
        self._hub_is_back.set()

    def is_idle_for_good(self, timeout_s: float = 30.0) -> bool:
        """Take no further attempts unless one comes with the claim that is under way: then work goes on, and this is False."""
        self.claim_no_more()
        for thread in self._threads:
            if thread.name == "claim":
                thread.join(timeout_s)
        if not self._all_jobs():
            return True
        self._full.clear()
        self._spawn("claim")
        return False

    def stop_attempts(
        self,
        reason: str,
        timeout_s: float = 40.0,
        failure: FailureClass = FailureClass.STOPPED,
    ) -> bool:
        """End all attempts and report them; True when all their processes have ended within ``timeout_s``.

        A hub that is away gets the reports from the next worker. ``failure``: see ``AttemptRunner.request_stop``.
        """
        jobs = self._all_jobs()
        for job in jobs:
            job.runner.request_stop(reason, failure=failure)
            job.endings.wake()
        ends = time.monotonic() + timeout_s
        while time.monotonic() < ends and not all(job.runner.finished for job in jobs):
            time.sleep(0.1)
        reported_by = min(ends, time.monotonic() + REPORT_S)
        while time.monotonic() < reported_by and self._all_jobs():
            time.sleep(0.1)
        return all(job.runner.finished for job in jobs)

    def abandon(self, reason: str) -> None:
        """The attempts' folders are gone, and their evidence with them: end what still runs and tell the hub."""
        self._ending.set()
        for job in self._all_jobs():
            self._abandon(job, reason)

    def may_leave(self) -> bool:
        """Whether this worker was removed and has nothing left to do: its evidence is delivered."""
        return self.wanted is WorkerState.REMOVED and not self._all_jobs()

    def idle_s(self) -> float:
        """Seconds since it last had an attempt; 0 while it has one."""
        now = self._clock.monotonic()
        if self._all_jobs():
            self._idle_since = now
        return now - self._idle_since

    def attempts(self) -> list[str]:
        """Ids of the attempts that the worker has."""
        return [job.runner.spec.attempt_id for job in self._all_jobs()]

    # -- attempts ---------------------------------------------------------------------------------------------

    def accept(self, spec: AttemptSpec) -> None:
        """Begin an attempt that was claimed. From the first line on it is on file."""
        folder = AttemptFolder.of(self.runs, spec.attempt_id)
        if spec.attempt_id in self.attempts():
            return
        folder.save_spec(spec)
        self._take(folder, adopted=False)

    def _take(self, folder: AttemptFolder, *, adopted: bool) -> None:
        office = self.settings.gpus
        measured = {} if office is None else {"busy_gpus": office.busy}
        runner = AttemptRunner(folder, self._hub.artifact, self._launcher, self._clock, **measured)
        refused = functools.partial(runner.request_stop, forget=True)
        uplink = AttemptUplink(folder, self._hub, refused, self._launcher.environ)
        if uplink.over and runner.finished:
            return
        if adopted and not runner.finished:
            logger.info("taking up %s in phase %s", runner.spec.attempt_id, runner.memo.phase)
            runner.events.add("worker", "adopted", phase=runner.memo.phase)
        sending = Contact(f"{runner.spec.attempt_id}: sending its evidence", tells_away=False)
        presence = Presence(folder.spec_file, same_file=False)
        job = Job(runner, uplink, runner.blueprint.resources.slots, sending, presence)
        with self._guard:
            self._jobs[runner.spec.attempt_id] = job
        if not runner.finished:
            name = f"attempt {runner.spec.attempt_id}"
            job.thread = threading.Thread(target=self._run, args=(job,), name=name, daemon=True)
            job.thread.start()

    def _run(self, job: Job) -> None:
        failures, phase = 0, ""
        while not self._ending.is_set():
            if self._lost(job):
                break
            if job.presence.there() is False:
                self._ending.wait(self.settings.tick_s)
                continue
            try:
                if job.runner.tick():
                    break
                failures = 0
            except Exception as error:
                # A fault of ours, or of the disk: it must not end the attempt at once, nor go on for ever.
                failures += 1
                logger.exception("%s: a tick failed", job.runner.spec.attempt_id)
                if failures >= MAX_TICK_FAILURES:
                    _give_up(job, error)
            entered, phase = job.runner.memo.phase != phase, job.runner.memo.phase
            if failures:
                self._ending.wait(self.settings.tick_s * min(8, 1 + failures))
            elif not entered:  # a new phase has something to do at once
                job.endings.wait(job.runner.supervisors(), self._between_looks(job))
        job.runner.close()
        job.endings.close()
        self._news.set()

    def _lost(self, job: Job) -> bool:
        """Whether its folder is gone for good, as several looks found; its end is told then."""
        if not job.presence.gone():
            return False
        folder = str(job.runner.folder.path)
        self._abandon(job, f"its folder {folder!r} was deleted under the worker")
        return True

    def _abandon(self, job: Job, reason: str) -> None:
        """End what runs of an attempt whose folder is gone; the hub may let another attempt follow."""
        spec = job.runner.spec
        with self._guard:
            if self._jobs.pop(spec.attempt_id, None) is None:
                return
        ended = sweep({NONCE: spec.nonce})
        logger.error("%s: %s; %d processes were ended", spec.attempt_id, reason, ended)
        told = FinishReport(
            fencing_token=spec.fencing_token,
            outcome="failed",
            failure=FailureClass.HOST_LOST,
            reason=reason,
        )
        with contextlib.suppress(A3RError):
            self._hub.finish(spec.attempt_id, told)

    def _between_looks(self, job: Job) -> float:
        """Seconds: more and more while nothing happens, for an end of a process is told by the kernel."""
        times = min(MOST_TICKS_APART, max(1.0, job.runner.calm / CALM_TICKS))
        return self.settings.tick_s * times

    def _all_jobs(self) -> list[Job]:
        with self._guard:
            return list(self._jobs.values())

    def free_slots(self) -> int:
        """Slots that no running attempt takes."""
        return self.settings.slots - sum(j.slots for j in self._all_jobs() if not j.runner.finished)

    # -- the hub ----------------------------------------------------------------------------------------------

    def _claim_forever(self) -> None:
        contact = Contact("asking for work")
        while not (self._ending.is_set() or self._full.is_set()):
            try:
                self._claim_once()
                contact.worked()
            except (A3RError, OSError, ValueError) as error:
                self._hub_is_back.clear()
                if not (self._ending.is_set() or self._full.is_set()):
                    self._hub_is_back.wait(contact.failed(error))

    def _claim_once(self) -> None:
        if not self._registered:
            self._register()
        free = self.free_slots()
        if free <= 0 or self.trouble():
            self._ending.wait(IDLE_S)
            return
        began = time.monotonic()
        gpus, others = self._gpus()
        spec = self._hub.claim(
            ClaimRequest(
                worker_id=self.settings.worker_id,
                free_slots=free,
                wait_s=CLAIM_WAIT_S,
                free_gpus=gpus,
                co_tenants=others,
                held=self.attempts(),
            )
        )
        if spec is not None:
            self._accept_or_decline(spec)
        elif time.monotonic() - began < IDLE_S:
            self._ending.wait(IDLE_S)  # a hub that does not hold requests must not be hammered

    def _accept_or_decline(self, spec: AttemptSpec) -> None:
        """Begin it; what cannot be put on file here is given back with the reason, not kept in silence until its lease is over."""
        try:
            self.accept(spec)
        except (OSError, ValueError) as error:
            logger.exception("%s cannot be taken", spec.attempt_id)
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            found = FailureClass.DISK_FULL if full else FailureClass.ENVIRONMENT
            why = f"the worker could not put it on file: {error}"
            told = FinishReport(
                fencing_token=spec.fencing_token, outcome="failed", failure=found, reason=why
            )
            self._hub.finish(spec.attempt_id, told)

    def trouble(self) -> str:
        """Why nothing new can be taken, in words; empty = it can. Logged when it changes."""
        found = disk_trouble(self.settings.home, self.settings.free_bytes)
        if found != self._trouble:
            logger.warning("%s", found or "there is room on the disk again")
        self._trouble = found
        return found

    def _gpus(self) -> tuple[list[int], list[dict[str, Any]]]:
        """What is measured free now; a GPU of an attempt whose processes may still live is not offered."""
        office = self.settings.gpus
        if office is None:
            return [], []
        held = [gpu for job in self._all_jobs() for gpu in job.runner.spec.gpus]
        return office.offer(held)

    def _register(self) -> None:
        s = self.settings
        told = WorkerRegistration(
            worker_id=s.worker_id,
            host=s.host,
            pid=s.pid,
            slots=s.slots,
            inventory=s.inventory,
            pool=s.pool,
            pool_job=s.pool_job,
        )
        try:
            welcome = self._hub.register(told)
        except Conflict:
            self._unwelcome = True
            raise
        self._heartbeat_s, self._epoch = welcome.heartbeat_s, welcome.hub_epoch
        self._registered, self._unwelcome = True, False

    def _heartbeat_forever(self) -> None:
        contact = Contact("heartbeats", most_s=MOST_HEARTBEAT_GAP_S)
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                commands = self._beat()
                if contact.worked():
                    self._hub_is_back.set()
                spent_s = time.monotonic() - began
                gap_s = MIN_HEARTBEAT_GAP_S if commands else self._heartbeat_s - spent_s
            except (A3RError, OSError, ValueError) as error:
                gap_s = contact.failed(error)
            self._ending.wait(max(0.05, gap_s))

    def _beat(self) -> list[Command]:
        reports = [_report(job) for job in self._all_jobs() if not job.uplink.over]
        if self._unwelcome and not reports:
            return []  # what the hub says is for another worker
        reply = self._hub.heartbeat(
            HeartbeatRequest(
                worker_id=self.settings.worker_id,
                attempts=reports,
                wait_s=self._heartbeat_s if reports else 0.0,
                trouble=self.trouble(),
            )
        )
        if reply.hub_epoch != self._epoch:
            self._registered = False  # another daemon: introduce ourselves again
        self.wanted = reply.wanted
        for command in reply.commands:
            self._obey(command)
        return reply.commands

    def _obey(self, command: Command) -> None:
        if command.kind in ("fetch_log", "fetch_trace"):
            self._hub.answer(
                command.id,
                answer(command, self.runs, self.settings.worker_id, self._launcher.environ),
            )
            return
        job = self._jobs.get(command.attempt_id)
        if job is None:
            return
        if command.kind == "forget_attempt":
            job.uplink.refuse(command.reason or "the hub has forgotten it")
        job.runner.request_stop(
            command.reason or "the hub asked for it", forget=command.kind == "forget_attempt"
        )
        job.endings.wake()

    def _uplink_forever(self) -> None:
        while not self._ending.is_set():
            self._news.clear()
            self.send_evidence()
            self._news.wait(UPLINK_S)

    def send_evidence(self) -> None:
        """One pass over all attempts; those that are finished and acknowledged are let go."""
        for job in self._all_jobs():
            if time.monotonic() < job.send_after:
                continue
            if job.presence.there() is False:
                if job.runner.finished:  # else its own thread looks
                    self._lost(job)
                continue
            try:
                job.uplink.send()
                job.sending.worked()
            except (A3RError, OSError, ValueError) as error:
                job.send_after = time.monotonic() + job.sending.failed(error)
            if job.uplink.over and job.runner.finished:
                with self._guard:
                    self._jobs.pop(job.runner.spec.attempt_id, None)


def _report(job: Job) -> AttemptReport:
    told = job.runner.report()
    return told.model_copy(update={"detail": job.uplink.without_secrets(told.detail)})


def _give_up(job: Job, error: Exception) -> None:
    """End the attempt; what cannot be written now (a full disk) is tried again after the next tick, so it does end."""
    over = AttemptOver("failed", FailureClass.UNKNOWN, f"the worker failed: {error!r}")
    try:
        job.runner.give_up(over)
    except Exception:
        logger.exception("%s: its end could not be noted", job.runner.spec.attempt_id)
