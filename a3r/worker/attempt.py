"""Runs one attempt: looks at its files, its processes and its server, and does the next thing that is missing.

Level-triggered: ``tick`` asks what is there and never what happened, so a worker that died at any line is replaced by one
that looks again. Phases: preparing -> running -> evaluating -> stopping -> finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from a3r.blueprints.model import Blueprint
from a3r.core.errors import A3RError, BlueprintError, HubUnreachable
from a3r.core.ports import Clock
from a3r.core.types import AttemptState, FailureClass
from a3r.core.wire import AttemptReport
from a3r.worker.clusters import reap_clusters
from a3r.worker.collect import ServerEnd, check_other, check_proof, finish_report, proof
from a3r.worker.containers import reap
from a3r.worker.deadlines import overdue
from a3r.worker.environments import Environments, specs_of
from a3r.worker.events import EventLog
from a3r.worker.failures import classify
from a3r.worker.folder import AttemptFolder
from a3r.worker.keeper import WORKING, Keeper
from a3r.worker.logs import keep_tail
from a3r.worker.prepare import gated_step, prepare
from a3r.worker.processes import ExitRecord, Launcher, ProcessState, read_json, sweep
from a3r.worker.repair import AttemptOver, Repair
from a3r.worker.roles import Starter
from a3r.worker.supervisor import NONCE, write_json
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState

logger = logging.getLogger(__name__)

STOP_LOOK_S = 1.0
CLIENT_LEAVES_S = 15.0
"""A client is given this long to end by itself after the last round."""
_REPORTED = {
    "preparing": AttemptState.PREPARING,
    "running": AttemptState.RUNNING,
    "evaluating": AttemptState.EVALUATING,
    "stopping": AttemptState.EVALUATING,
}


class AttemptRunner:
    """One attempt. All methods but ``request_stop``, ``report`` and ``forget`` are for one thread."""

    def __init__(
        self,
        folder: AttemptFolder,
        fetch: Callable[[str], bytes],
        launcher: Launcher,
        clock: Clock,
        busy_gpus: Callable[[Sequence[int]], list[int]] = lambda _: [],
    ) -> None:
        """Take up the attempt whose ``attempt.json`` is in ``folder``.

        Args:
            folder: its folder.
            fetch: returns the bytes of an artifact by its sha256; may raise HubUnreachable.
            launcher: starts processes.
            clock: wall and monotonic time.
            busy_gpus: of these GPUs, those that are in use now.
        """
        self.folder, self.clock = folder, clock
        self.spec = folder.spec()
        self.blueprint = Blueprint.model_validate(self.spec.blueprint)
        self.memo = folder.memo()
        self.events = EventLog(folder, clock)
        external = bool(self.blueprint.external_models)
        repair = Repair(folder, self.blueprint.limits, self.events, clock, external)
        starter = Starter(folder, self.spec, self.blueprint, launcher)
        self.keeper = Keeper(folder, self.memo, self.events, repair, starter, launcher)
        self._launcher = launcher
        self._fetch, self._busy_gpus = fetch, busy_gpus
        self.calm = 0
        """Ticks since something was decided or seen."""
        self._stop_asked: tuple[str, bool, FailureClass] | None = None

    # -- what others may ask at any time ----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether every process has ended and the finish report is written."""
        return self.memo.phase == "finished"

    def request_stop(
        self,
        reason: str,
        *,
        forget: bool = False,
        failure: FailureClass = FailureClass.STOPPED,
    ) -> None:
        """Ask for the end. ``forget``: the hub does not want the result; the folder stays as evidence.

        ``failure``: STOPPED cancels the attempt; any other is how it failed, which another attempt may follow.
        """
        if self._stop_asked is None or forget:
            self._stop_asked = (reason, forget, failure)

    def report(self) -> AttemptReport:
        """The attempt's line in a heartbeat."""
        state = _REPORTED.get(self.memo.phase)
        if state is None:
            state = AttemptState(self.memo.outcome or "failed")
        elif self.memo.blocked:
            state = AttemptState.BLOCKED
        return AttemptReport(
            attempt_id=self.spec.attempt_id,
            fencing_token=self.spec.fencing_token,
            state=state,
            step=self.memo.step,
            detail=self.memo.blocked or self.memo.reason or self.keeper.detail,
        )

    # -- the loop ---------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Look, and do the next thing; True once the attempt is finished. Safe to be killed at any line."""
        before = self.memo.model_copy(deep=True)
        phases = {
            "preparing": self._prepare,
            "running": self._run,
            "evaluating": self._evaluate,
            "stopping": self._stop,
        }
        try:
            self._check_time_and_stop()
            if self.memo.phase in phases:
                phases[self.memo.phase]()
        except AttemptOver as over:
            self._end(over)
        self.calm += 1
        if self.memo != before:
            self.calm = 0
            self.folder.save_memo(self.memo)
        return self.finished

    def supervisors(self) -> list[tuple[int, int]]:
        """(pid, start time) of those that keep a living process of the attempt: their end is news."""
        return [found for p in self.folder.processes() if (found := p.supervisor()) is not None]

    def give_up(self, over: AttemptOver) -> None:
        """End the attempt for a reason that no tick found."""
        if self.memo.phase not in ("stopping", "finished"):
            self._end(over)
            self.folder.save_memo(self.memo)

    def close(self) -> None:
        """Let go of the server's connections; the processes go on."""
        self.keeper.close()

    def _check_time_and_stop(self) -> None:
        if self.memo.phase in ("stopping", "finished"):
            return
        if self._stop_asked is not None:
            reason, forget, failure = self._stop_asked
            self.memo.forgotten = self.memo.forgotten or forget
            outcome = "cancelled" if failure is FailureClass.STOPPED else "failed"
            raise AttemptOver(outcome, failure, reason)
        if self.memo.started_at:
            late = overdue(self.memo, self.blueprint.limits, self.clock.time())
            if late is not None and not (
                late[0] is FailureClass.STALL
                and self.memo.phase == "running"
                and self.keeper.rouse(late[1])
            ):
                raise AttemptOver("failed", late[0], f"{late[1]} ({self.keeper.detail})")

    # -- preparing --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if not self.memo.started_at:
            self.memo.started_at = self.memo.progress_at = self.clock.time()
        try:
            if "prepared" not in self.memo.said:
                prepare(self.folder, self.spec, self.blueprint, self._fetch)
                self.memo.said.append("prepared")
        except HubUnreachable:
            return  # the artifact is not here yet; the time limit counts on
        except (A3RError, OSError) as error:
            known = isinstance(error, BlueprintError)
            record = ExitRecord(error=str(error))
            failure = FailureClass.CONFIG if known else classify("client", record, b"")
            raise AttemptOver("failed", failure, str(error)) from None
        if not self.keeper.environments():
            return
        self.events.add("worker", "prepared", seed=self.spec.seed, attempt=self.spec.ordinal)
        self.memo.phase = "running"

    # -- running and evaluating -------------------------------------------------------------------------------

    def _run(self) -> None:
        status = self.keeper.server()
        if status is None or status.state not in WORKING:
            return
        self.keeper.end_early()
        rounds_done = [self.keeper.round(name) for name in self._due_rounds(status)]
        self.keeper.clients(status)
        trained = status.state is EngineState.TRAINED and self.keeper.others_done()
        if trained and all(rounds_done) and self.keeper.watch.steps >= status.step:
            self.keeper.say(
                "trained", "server", step=status.step, fingerprint=status.fingerprint or ""
            )
            self.memo.progress_at = self.clock.time()
            self.memo.phase = "evaluating"

    def _due_rounds(self, status: Status) -> list[str]:
        """The rounds before the end that the server has come to: ``initial`` and ``step-<k>``."""
        names = [n for n in self.blueprint.evaluator.rounds if n != "final"]
        return [n for n in names if status.step >= gated_step(n)]

    def _evaluate(self) -> None:
        status = self.keeper.server()
        if status is None or status.state is not EngineState.TRAINED:
            return
        self.keeper.clients(status)
        if not self.keeper.round("final"):
            return
        waited_s = self.clock.time() - self.memo.progress_at
        if not self.keeper.clients_left() and waited_s < CLIENT_LEAVES_S:
            return
        config, others = self.keeper.watch.config(), self._others()
        if config is None or others is None:
            return
        planned = self.keeper.ended_at(status.step)
        problems = check_proof(
            self.folder, self.spec, self.blueprint, config, status, stopped_at=planned
        )
        problems += [p for end in others for p in check_other(end, self.spec, stopped_at=planned)]
        if problems:
            reason = "not proven: " + "; ".join(problems)
            raise AttemptOver("failed", FailureClass.UNKNOWN, reason)
        told = proof(self.folder, config, status)
        if others:
            told["servers"] = {end.server.name: end.told() for end in others}
        write_json(self.folder.path / "proof.json", told)
        raise AttemptOver("succeeded")

    def _others(self) -> list[ServerEnd] | None:
        """What the further servers say of their runs; None when one does not answer now."""
        ends: list[ServerEnd] = []
        for server in self.blueprint.servers[1:]:
            found = self.keeper.end_of(server.name)
            if found is None:
                return None
            ends.append(ServerEnd(server, *found))
        return ends

    # -- the end ----------------------------------------------------------------------------------------------

    def _end(self, over: AttemptOver) -> None:
        """Note the outcome; the processes are stopped from the next tick on."""
        memo = self.memo
        memo.phase, memo.outcome = "stopping", over.outcome
        memo.failure, memo.reason = over.failure, over.reason
        memo.blocked = memo.blocked_role = ""
        told = over.failure.value if over.failure else None
        self.events.add(
            "worker", "attempt_ended", outcome=over.outcome, failure=told, reason=over.reason
        )

    def _end_containers(self) -> int:
        """Containers that outlived their engine's client; asked for only where the blueprint has any."""
        kinds = {spec.kind for _, spec in specs_of(self.blueprint)}
        if "container" not in kinds:
            return 0
        return reap(self.spec.nonce, self._launcher.environ.get("PATH"))

    def _environments(self) -> Environments:
        return Environments(self.folder.path.parents[1], self._launcher.environ)

    def _measure_gpus(self) -> None:
        """Say whether the GPUs are free again; the hub's table is no proof, and a person may have to look."""
        gpus = self.spec.gpus
        if not gpus:
            return
        busy = self._busy_gpus(gpus)
        kind = "gpus_not_free" if busy else "gpus_returned"
        told = {"gpus": " ".join(map(str, gpus)), "in_use": " ".join(map(str, busy))}
        self.events.add("worker", kind, **told)

    def _stop(self) -> None:
        for process in self.keeper.living():
            process.terminate()
        if not self.keeper.gone_within(STOP_LOOK_S):
            return
        orphaned = [p for p in self.folder.processes() if p.state() is ProcessState.UNKNOWN]
        left = sum(process.sweep() for process in orphaned)
        left += sweep({NONCE: self.spec.nonce}) + self._end_containers()
        self.events.add("worker", "processes_gone", leftovers_ended=left)
        for name, told in reap_clusters(self.folder, self.blueprint, self._environments()).items():
            self.events.add("worker", "cluster_reaped", server=name, **told)
        self._measure_gpus()
        for log in sorted((self.folder.path / "logs").glob("*.log")):
            keep_tail(log)
        proven = read_json(self.folder.path / "proof.json") or {}
        report = finish_report(self.folder, self.spec, self.memo, proven, self.clock.time())
        write_json(self.folder.finish_file, report.model_dump(mode="json"))
        self._launcher.close_session(self.folder.session)
        self.memo.phase = "finished"
