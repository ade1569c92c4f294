"""What to do when a process of an attempt has ended and should not have: name the failure, apply its remedy within budget."""

from __future__ import annotations

from dataclasses import dataclass

from a3r.blueprints.model import Limits
from a3r.core.ports import Clock
from a3r.core.types import FailureClass
from a3r.worker.events import EventLog
from a3r.worker.failures import REMEDIES, Action, classify
from a3r.worker.folder import AttemptFolder, Memo, role_of
from a3r.worker.processes import ExitRecord, Process, ProcessState

MAX_EVALUATOR_RESTARTS = 2
BLOCKED_PROBE_S = 30.0
"""A blocked attempt tries again this often, and ever less often up to ten times this."""
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
        found = failure or classify(role, record, tail)
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
        self._apply(memo, process, found, f"{role}: {how}; {said}")

    def _apply(self, memo: Memo, process: Process, failure: FailureClass, reason: str) -> None:
        role, remedy = role_of(process), REMEDIES[failure]
        now = self.clock.time()
        if remedy.action is Action.FAIL:
            raise AttemptOver("failed", failure, f"{reason} ({remedy.advice})")
        name = process.name.rpartition(".")[0]
        if remedy.action is Action.BLOCK:
            free = memo.free_starts.get(name, 0)
            memo.free_starts[name] = free + 1
            memo.blocked_at = memo.blocked_at if memo.blocked else now
            memo.blocked, memo.blocked_role = f"{failure.value}: {remedy.advice} ({reason})", name
            memo.not_before[name] = now + BLOCKED_PROBE_S * min(10, 2**free)
            self.events.add("worker", "blocked", failure=failure.value, advice=remedy.advice)
            return
        counted = process.generation - 1 - memo.free_starts.get(name, 0)
        if counted >= self.budget(role):
            raise AttemptOver("failed", failure, f"{reason} (restarted {counted} times)")
        if failure is FailureClass.PORT_TAKEN:
            memo.port = None
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
        memo.progress_at = self.clock.time()
        memo.waited_s += memo.progress_at - memo.blocked_at


def last_line(tail: bytes) -> str:
    """The last line of a log that says something, at most 300 characters."""
    lines = tail.decode("utf-8", "replace").replace("\r", "\n").splitlines()
    # Our own marks and the advice that follows an error say nothing of what happened.
    said = [s for line in lines if (s := line.strip()) and not s.startswith(("--- a3r", "hint:"))]
    return said[-1][:300] if said else "the log is empty"


def ended_well(record: ExitRecord) -> bool:
    """Exit code 0, by itself."""
    return record.code == 0 and not record.asked_by and not record.error
