"""Protocols that keep the outside world replaceable: clocks, terminals, GPUs, the hub as a worker sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from a3r.core.wire import (
    AttemptSpec,
    ClaimRequest,
    CommandAnswer,
    EvalRound,
    EventsRequest,
    FinishReport,
    HeartbeatReply,
    HeartbeatRequest,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
    WorkerWelcome,
)


class Clock(Protocol):
    """Wall clock and monotonic clock, both in seconds."""

    def time(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class Terminal(Protocol):
    """Where a person looks (tmux). Truth is never kept here: every method may fail without harm to the run."""

    def available(self) -> bool:
        """False when there is no terminal multiplexer."""
        ...

    def open_window(
        self, session: str, name: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> bool:
        """Run ``argv`` in a new window; False when that was not possible (the caller then starts it directly)."""
        ...

    def close_session(self, session: str) -> None:
        """Close the session's windows; a missing session is fine."""
        ...

    def has_session(self, session: str) -> bool:
        """Whether there is something to attach to."""
        ...

    def attach_argv(self, session: str) -> list[str]:
        """The command that a person runs to attach."""
        ...


class Hub(Protocol):
    """The hub as a worker sees it; ``a3r.worker.hub_client`` over HTTP, a fake in ``a3r.testing``.

    Methods raise ``HubUnreachable`` (try later, nothing is lost) or ``Conflict`` (fencing token is stale: stop the attempt).
    """

    def register(self, request: WorkerRegistration) -> WorkerWelcome:
        """Say who this worker is; safe to repeat."""
        ...

    def claim(self, request: ClaimRequest) -> AttemptSpec | None:
        """Take an attempt, or None when there is nothing to do within ``wait_s``."""
        ...

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        """Renew the leases of the attempts listed and receive commands."""
        ...

    def events(self, attempt_id: str, request: EventsRequest) -> None:
        """Send events; a repeated ``seq`` is harmless."""
        ...

    def steps(self, attempt_id: str, request: StepsRequest) -> None:
        """Send step records; a repeated step is harmless."""
        ...

    def evals(self, attempt_id: str, request: EvalRound) -> None:
        """Send one complete evaluation round; a repeat is harmless."""
        ...

    def logs(self, attempt_id: str, request: LogChunk) -> None:
        """Send raw log bytes at an offset."""
        ...

    def finish(self, attempt_id: str, request: FinishReport) -> None:
        """Report the end of an attempt."""
        ...

    def answer(self, command_id: int, request: CommandAnswer) -> None:
        """Answer a command; a repeat is harmless."""
        ...

    def artifact(self, sha256: str) -> bytes:
        """Fetch an artifact by its sha256."""
        ...


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    name: str
    memory_mb: int | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as it was measured a moment ago."""

    index: int
    uuid: str
    name: str
    memory_mb: int
    used_mb: int
    processes: tuple[GpuProcess, ...] = ()
    """Those that the driver shows; none inside many containers, where only ``used_mb`` tells."""


class GpuProbe(Protocol):
    """Measures the GPUs of this host; ``a3r.adapters.nvml`` asks the driver."""

    def read(self) -> list[GpuReading]:
        """Every GPU of this host, by index; empty when there is none.

        Raises:
            HostError: there are GPUs, but the driver does not answer: none of them may be offered.
        """
        ...
