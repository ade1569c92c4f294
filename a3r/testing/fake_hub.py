"""A hub in memory with the real one's rules for workers: leases with fencing tokens, idempotent evidence, commands."""

from __future__ import annotations

import base64
import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from a3r.core.errors import Conflict, HubUnreachable, NotFound
from a3r.core.hashing import bytes_hash
from a3r.core.types import AttemptState, WorkerState
from a3r.core.wire import (
    AttemptReport,
    AttemptSpec,
    ClaimRequest,
    Command,
    CommandAnswer,
    EvalRound,
    EventReport,
    EventsRequest,
    FinishReport,
    HeartbeatReply,
    HeartbeatRequest,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
    WorkerWelcome,
)


@dataclass
class FakeAttempt:
    """What the hub knows of one attempt."""

    spec: AttemptSpec
    state: AttemptState = AttemptState.QUEUED
    worker_id: str = ""
    reports: list[AttemptReport] = field(default_factory=list[AttemptReport])
    events: dict[int, EventReport] = field(default_factory=dict[int, EventReport])
    steps: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    rounds: dict[str, EvalRound] = field(default_factory=dict[str, EvalRound])
    logs: dict[str, bytes] = field(default_factory=lambda: defaultdict(bytes))
    finish: FinishReport | None = None
    stop_reason: str = ""

    def kinds(self) -> list[str]:
        """Kinds of the events, in order."""
        return [self.events[seq].kind for seq in sorted(self.events)]


class FakeHub:
    """Implements ``a3r.core.ports.Hub``. ``away = True`` plays a hub that does not answer, ``second`` one that has such a worker."""

    def __init__(self, *, heartbeat_s: float = 0.5, lease_s: float = 15.0) -> None:
        """An empty hub."""
        self.heartbeat_s, self.lease_s = heartbeat_s, lease_s
        self.away = self.second = False
        self.beats = 0
        self.epoch = "epoch-1"
        self.workers: dict[str, WorkerRegistration] = {}
        self.attempts: dict[str, FakeAttempt] = {}
        self.artifacts: dict[str, bytes] = {}
        self.questions: list[Command] = []
        self.answers: dict[int, CommandAnswer] = {}
        self.claims: list[ClaimRequest] = []
        self.wanted = WorkerState.ACTIVE
        self.troubles: dict[str, str] = {}
        self._fencing = itertools.count(1)
        self._guard = threading.Lock()

    # -- the tests' side --------------------------------------------------------------------------------------

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes; returns their sha256."""
        sha = bytes_hash(data)
        self.artifacts[sha] = data
        return sha

    def queue(self, spec: AttemptSpec) -> FakeAttempt:
        """Offer an attempt to the next claim."""
        attempt = self.attempts[spec.attempt_id] = FakeAttempt(spec)
        return attempt

    def give_up(self, attempt_id: str) -> None:
        """Fence the attempt off, as when it was lost: later writes of its worker are refused."""
        attempt = self.attempts[attempt_id]
        token = next(self._fencing)
        attempt.spec = attempt.spec.model_copy(update={"fencing_token": token})
        attempt.state = AttemptState.LOST

    # -- the worker's side ------------------------------------------------------------------------------------

    def register(self, request: WorkerRegistration) -> WorkerWelcome:
        """Note the worker."""
        with self._here():
            if self.second:
                raise Conflict("There is such a worker: this one's folder must be a copy.")
            self.workers[request.worker_id] = request
            return WorkerWelcome(
                worker_id=request.worker_id,
                heartbeat_s=self.heartbeat_s,
                lease_s=self.lease_s,
                hub_epoch=self.epoch,
            )

    def claim(self, request: ClaimRequest) -> AttemptSpec | None:
        """Lease the oldest queued attempt under a new fencing token. Does not wait."""
        with self._here():
            self.claims.append(request)
            for attempt in self.attempts.values():
                if _unheard(attempt, request):
                    return attempt.spec
                if attempt.state is AttemptState.QUEUED:
                    attempt.state, attempt.worker_id = AttemptState.LEASED, request.worker_id
                    token = {"fencing_token": next(self._fencing)}
                    attempt.spec = attempt.spec.model_copy(update=token)
                    return attempt.spec
            return None

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        """Note the reports; answer with commands. Does not wait."""
        with self._here():
            self.beats += 1
            self.troubles[request.worker_id] = request.trouble
            commands: list[Command] = []
            for report in request.attempts:
                attempt = self.attempts.get(report.attempt_id)
                if attempt is None or attempt.spec.fencing_token != report.fencing_token:
                    commands.append(self._stop(report, "the fencing token is stale"))
                    continue
                attempt.reports.append(report)
                if attempt.finish is None:
                    attempt.state = report.state
                if attempt.stop_reason:
                    commands.append(self._stop(report, attempt.stop_reason))
            commands += [q for q in self.questions if q.id not in self.answers]
            return HeartbeatReply(commands=commands, hub_epoch=self.epoch, wanted=self.wanted)

    def events(self, attempt_id: str, request: EventsRequest) -> None:
        """Keep events by ``seq``."""
        with self._here():
            attempt = self._current(attempt_id, request.fencing_token)
            for event in request.events:
                attempt.events.setdefault(event.seq, event)

    def steps(self, attempt_id: str, request: StepsRequest) -> None:
        """Keep steps by number."""
        with self._here():
            attempt = self._current(attempt_id, request.fencing_token)
            for step in request.steps:
                attempt.steps.setdefault(int(step["step"]), step)

    def evals(self, attempt_id: str, request: EvalRound) -> None:
        """Keep a round by name; another content under the same name is a Conflict."""
        with self._here():
            attempt = self._current(attempt_id, request.fencing_token)
            if attempt.rounds.setdefault(request.name, request) != request:
                raise Conflict(f"The round {request.name!r} is filed with another content.")

    def logs(self, attempt_id: str, request: LogChunk) -> None:
        """Append bytes; an overlap is cut, a gap is a Conflict."""
        with self._here():
            attempt = self._current(attempt_id, request.fencing_token)
            known, data = attempt.logs[request.name], base64.b64decode(request.data_b64)
            if request.offset > len(known):
                raise Conflict(f"The log {request.name!r} ends at {len(known)}.", length=len(known))
            attempt.logs[request.name] = known[: request.offset] + data

    def finish(self, attempt_id: str, request: FinishReport) -> None:
        """Take the result; the same report again is harmless."""
        with self._here():
            attempt = self._current(attempt_id, request.fencing_token)
            attempt.finish = attempt.finish or request
            attempt.state = AttemptState(request.outcome)

    def answer(self, command_id: int, request: CommandAnswer) -> None:
        """Keep the first answer."""
        with self._here():
            self.answers.setdefault(command_id, request)

    def artifact(self, sha256: str) -> bytes:
        """Bytes by hash."""
        with self._here():
            if sha256 not in self.artifacts:
                raise NotFound(f"There is no artifact {sha256!r}.")
            return self.artifacts[sha256]

    # -- inside -----------------------------------------------------------------------------------------------

    def _here(self) -> threading.Lock:
        if self.away:
            raise HubUnreachable("The hub does not answer (a test says so).")
        return self._guard

    def _current(self, attempt_id: str, fencing_token: int) -> FakeAttempt:
        attempt = self.attempts.get(attempt_id)
        if attempt is None:
            raise NotFound(f"There is no attempt {attempt_id!r}.")
        if attempt.spec.fencing_token != fencing_token:
            raise Conflict(f"The fencing token {fencing_token} of {attempt_id!r} is stale.")
        return attempt

    @staticmethod
    def _stop(report: AttemptReport, reason: str) -> Command:
        return Command(kind="stop_attempt", attempt_id=report.attempt_id, reason=reason)


def _unheard(attempt: FakeAttempt, request: ClaimRequest) -> bool:
    """Whether the worker was given the attempt and never got it."""
    mine = attempt.worker_id == request.worker_id and not attempt.reports
    leased = mine and attempt.state is AttemptState.LEASED
    return leased and request.held is not None and attempt.spec.attempt_id not in request.held
