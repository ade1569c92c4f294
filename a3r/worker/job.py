"""What a worker is made of, and what it has in hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from a3r.core.presence import Presence
from a3r.worker.attempt import AttemptRunner
from a3r.worker.contact import Contact
from a3r.worker.endings import Endings
from a3r.worker.fitness import free_bytes
from a3r.worker.gpus import GpuOffice
from a3r.worker.uplink import AttemptUplink

TICK_S = 0.5
CALM_TICKS = 10
"""Ticks without news after which the looks become rarer: the kernel tells of ends, and the rest is not urgent."""
MOST_TICKS_APART = 4.0


@dataclass
class Job:
    """One attempt that the worker has."""

    runner: AttemptRunner
    uplink: AttemptUplink
    slots: int
    sending: Contact
    """How sending its evidence goes."""
    presence: Presence
    """Whether its folder is there. What a deleted one leads to is never taken for the attempt's own fault."""
    thread: threading.Thread | None = None
    endings: Endings = field(default_factory=Endings)
    """Wakes the thread when a process of the attempt ends."""
    send_after: float = 0.0
    """Monotonic seconds before which its evidence is not sent again."""


@dataclass(frozen=True)
class WorkerSettings:
    """Who the worker is and what it may use."""

    home: Path
    """The ``.a3r`` folder."""
    worker_id: str
    host: str
    pid: int
    slots: int
    inventory: dict[str, object] = field(default_factory=dict[str, object])
    tick_s: float = TICK_S
    gpus: GpuOffice | None = None
    """Measures this host's GPUs; None = it offers none."""
    free_bytes: Callable[[Path], int] = free_bytes
    """Bytes that are free in a folder."""
    pool: str = ""
    pool_job: str = ""
    """Who asked for this worker; empty: a person, or the daemon."""
