"""What to do when a process of an attempt has ended and should not have: name the failure, apply its remedy within budget."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from a3r.blueprints.model import Limits
from a3r.core.errors import A3RError, BlueprintError
from a3r.core.ports import Clock
from a3r.core.types import FailureClass
from a3r.worker.environments import SecretMissing
from a3r.worker.events import EventLog
from a3r.worker.failures import REMEDIES, Action, classify
from a3r.worker.folder import AttemptFolder, Memo, role_of
from a3r.worker.logs import clean_lines
from a3r.worker.processes import ExitRecord, Process, ProcessState

MAX_EVALUATOR_RESTARTS = 2
CUDA_FRAGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""How CUDA memory is cut into pieces: nothing that an experiment studies, and often the whole trouble."""
SECRET_PROBE_S = 3.0
"""To look a secret up again costs nothing."""
FREE_BYTES = 256 << 20
"""A full disk is looked at before anything is started on it again."""
BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0


class AttemptOver(Exception):
    """The attempt can not, or need not, go on. Raised within one tick of a runner, never further."""

    def __init__(self, outcome: str, failure: FailureClass | None = None, reason: str = "") -> None:
        """``outcome``: succeeded, failed, cancelled."""
        super().__init__(reason or outcome)
        self.outcome, self.failure, self.reason = outcome, failure, reason


@dataclass
class Repair:
    """Decides over one attempt's processes. It starts nothing: it says when the next start may come, or that there is none."""

    folder: AttemptFolder
    limits: Limits
    events: EventLog
    clock: Clock
    external: bool = False
    """The client calls models besides its swarm servers."""

    def ended(
        self, memo: Memo, process: Process, failure: FailureClass | None = None, why: str = ""
    ) -> None:
        """Deal once with the end of ``process``; returns when it may be started again.

        Args:
            memo: changed in place; what was dealt with stands in ``handled``.
            process: ended, or told to end.
            failure: what it was, where the caller knows better than the exit record and the log.
            why: the same in words.

        Raises:
            AttemptOver: there is no remedy, or none is left.
        """
        if process.name in memo.handled:
            return
        role, record = role_of(process), process.exit()
        tail = process.log_tail()
        found = failure or classify(role, record, tail, external=self.external)
        if process.state() is ProcessState.UNKNOWN:
            process.sweep()
        how, said = why or record.words(), last_line(tail)
        self.events.add(
            role,
            "process_exited",
            process=process.name,
            failure=found.value,
            how=how,
            last_line=said,
        )
        memo.handled.append(process.name)
        name = role if role in ("evaluator", "environment") else process.name.rpartition(".")[0]
        self._apply(memo, process, found, f"{name}: {how}; {said}", cuda=b"CUDA" in tail)

    def not_started(self, memo: Memo, name: str, error: A3RError) -> None:
        """Deal with a process that this host cannot start now. A secret that is not there is waited for.

        Raises:
            AttemptOver: it never can.
        """
        if isinstance(error, SecretMissing):
            self._block(memo, name, FailureClass.AUTH, str(error), SECRET_PROBE_S)
            return
        config = isinstance(error, BlueprintError)
        found = FailureClass.CONFIG if config else FailureClass.ENVIRONMENT
        raise AttemptOver("failed", found, f"{name}: {error}")

    def may_probe(self, memo: Memo, name: str) -> bool:
        """Whether a blocked role may be started again; False where a cheap look shows that nothing has changed."""
        if memo.blocked_role != name or memo.blocked_class is not FailureClass.DISK_FULL:
            return True
        if shutil.disk_usage(self.folder.path).free >= FREE_BYTES:
            return True
        memo.not_before[name] = self.clock.time() + REMEDIES[FailureClass.DISK_FULL].probe_s
        return False

    def _block(
        self, memo: Memo, name: str, failure: FailureClass, reason: str, probe_s: float = 0.0
    ) -> None:
        """Wait for a person, or for the world; a start that comes of it costs no restart."""
        remedy, now = REMEDIES[failure], self.clock.time()
        memo.blocked_at = memo.blocked_at if memo.blocked else now
        memo.blocked, memo.blocked_role = f"{failure.value}: {remedy.advice} ({reason})", name
        memo.blocked_class = failure
        memo.not_before[name] = now + (probe_s or remedy.probe_s) * min(10, 2**memo.probes)
        memo.probes += 1
        self.events.add("worker", "blocked", failure=failure.value, advice=remedy.advice)

    def _apply(
        self, memo: Memo, process: Process, failure: FailureClass, reason: str, *, cuda: bool
    ) -> None:
        role, remedy = role_of(process), REMEDIES[failure]
        now = self.clock.time()
        if remedy.action is Action.FAIL:
            raise AttemptOver("failed", failure, f"{reason} ({remedy.advice})")
        name = process.name.rpartition(".")[0]
        if remedy.action is Action.BLOCK:
            memo.free_starts[name] = memo.free_starts.get(name, 0) + 1
            self._block(memo, name, failure, reason)
            return
        counted = process.generation - 1 - memo.free_starts.get(name, 0)
        if counted >= self.budget(role):
            raise AttemptOver("failed", failure, f"{reason} (restarted {counted} times)")
        if failure is FailureClass.PORT_TAKEN and role == "server":
            server = name.partition("-")[2]
            memo.moved(server, memo.where(server).url, None)
        if failure is FailureClass.OUT_OF_MEMORY and cuda and role == "server":
            memo.extra_env[name] = dict(CUDA_FRAGMENTS)
            reason = f"{reason}; now with {' '.join('='.join(v) for v in CUDA_FRAGMENTS.items())}"
        memo.not_before[name] = now + min(MAX_BACKOFF_S, BACKOFF_S * 2**counted)
        memo.progress_at = now
        self.events.add(role, f"{role}_restarted", after=process.name, failure=failure.value)
        self.events.deviation(
            f"{process.name} was started again", reason, failure=failure.value, restart=counted + 1
        )

    def budget(self, role: str) -> int:
        """How often a role may be started again."""
        if role == "server":
            return self.limits.max_server_restarts
        return self.limits.max_client_restarts if role == "client" else MAX_EVALUATOR_RESTARTS

    def unblock(self, memo: Memo) -> None:
        """The probe worked."""
        self.events.add("worker", "unblocked", role=memo.blocked_role, was=memo.blocked)
        memo.blocked = memo.blocked_role = ""
        memo.blocked_class, memo.probes = None, 0
        memo.progress_at = self.clock.time()
        memo.waited_s += memo.progress_at - memo.blocked_at


SAYS_NOTHING = ("--- a3r", "hint:", "Run 'docker run --help'")
"""Our own marks, and the advice that follows an error."""


def last_line(tail: bytes) -> str:
    """The last line of a log that says something, at most 300 characters."""
    lines = clean_lines(tail)
    said = [s for line in lines if (s := line.strip()) and not s.startswith(SAYS_NOTHING)]
    return said[-1][:300] if said else "the log is empty"


def ended_well(record: ExitRecord) -> bool:
    """Exit code 0, by itself."""
    return record.code == 0 and not record.asked_by and not record.error
