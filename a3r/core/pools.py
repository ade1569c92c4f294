"""A pool: a cluster engine (Ray, Slurm, SkyPilot) that is asked for workers. The words that a3r and its adapters share.

What runs where on a cluster is the engine's decision: a3r asks for a worker, sees what became of it, and takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field


class PoolKind(StrEnum):
    """Which engine."""

    RAY = "ray"
    SLURM = "slurm"
    LOCAL = "local"  # submitit's local executor: jobs are processes of this machine
    SKYPILOT = "skypilot"


class PoolState(StrEnum):
    """What a person wants of a pool."""

    ACTIVE = "active"
    REMOVING = "removing"  # asked for nothing more; its workers finish what they have
    ENDING = "ending"  # as removing, and its jobs are ended at once
    REMOVED = "removed"


class PoolJobState(StrEnum):
    """Life of one worker that was asked for; ``ended`` and ``failed`` are final."""

    ASKED = "asked"  # on file, perhaps not yet at the engine
    QUEUED = "queued"  # the engine has it and has not started it
    STARTING = "starting"  # the engine runs it, its worker has not come yet
    WORKING = "working"  # its worker has come
    ENDED = "ended"  # idle, or withdrawn
    FAILED = "failed"  # the engine ended it, or its worker never came


LIVE_JOBS = frozenset(
    {PoolJobState.ASKED, PoolJobState.QUEUED, PoolJobState.STARTING, PoolJobState.WORKING}
)


TICKET_PREFIX = "ticket."
"""Names of worker tokens that open nothing but the exchange for a token of one's own."""
TICKET_VARIABLE = "A3R_POOL_TICKET"
"""Where a job finds its ticket. Engines show and log what jobs are given, so nothing that lasts is ever in it."""
CA_VARIABLE = "A3R_POOL_CA"
"""The certificate (PEM) to trust for the hub; no secret."""


def ticket_name(job_id: str) -> str:
    """Name of a pool job's ticket among the worker tokens."""
    return f"{TICKET_PREFIX}{job_id}"


def token_name(job_id: str) -> str:
    """Name of the token that the ticket is exchanged for."""
    return f"pool.{job_id}"


class PoolOptions(BaseModel):
    """How a pool is asked, as a person wrote it. Which keys an engine takes is in ``a3r.pools.options``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_workers: int = Field(default=4, ge=1, le=10_000)
    """Jobs at once, waiting ones too."""
    slots: int = Field(default=1, ge=1)
    """Attempts at once of one worker."""
    gpus: int = Field(default=0, ge=0)
    """Of one worker; the engine is asked for them."""
    cpus: float | None = Field(default=None, gt=0)
    """Of one worker; None = the engine's default."""
    memory_gb: float | None = Field(default=None, gt=0)
    time_limit_min: int = Field(default=24 * 60, ge=1)
    """Slurm and local: the longest that a job may last."""
    idle_exit_s: float = Field(default=120.0, ge=1)
    """A worker without an attempt ends after so long."""
    start_timeout_s: float = Field(default=900.0, gt=0)
    """A job that runs and whose worker has not come after so long is ended."""
    hub_url: str = ""
    """The hub as the cluster's machines dial it; empty = this machine's address, for pools on this machine."""
    ca_file: str = ""
    """Certificate (PEM, on this machine) to trust for ``hub_url``; its text travels with the job."""
    python: str = ""
    """Interpreter with a3r on the cluster's machines; empty = the engine's default."""
    scratch: str = ""
    """Folder on the cluster's machines for workspaces of workers; empty = their TMPDIR or /tmp."""
    address: str = ""
    """Ray: address of the job server."""
    token_file: str = ""
    """Ray: file with the cluster's own bearer token."""
    runtime_env: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Ray: merged into the job's runtime environment."""
    folder: str = ""
    """Slurm and local: submitit's folder; for Slurm on a disk that the nodes share."""
    slurm: dict[str, str] = Field(default_factory=dict[str, str])
    """Slurm: more ``sbatch`` options, e.g. partition, account, qos, constraint."""
    task_file: str = ""
    """SkyPilot: the task's YAML (resources, setup), without ``run``."""


@dataclass(frozen=True, slots=True)
class JobAsk:
    """One worker that is asked for."""

    id: str
    """Of the pool job; engines name theirs so, which makes asking twice harmless."""
    argv: tuple[str, ...]
    """The command on the cluster's machine; it holds no secret."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the job's environment: how to reach the hub. Holds the ticket: see ``a3r.hub.enlisting``."""


@dataclass(frozen=True, slots=True)
class EngineJob:
    """What the engine says of one job."""

    state: PoolJobState
    """One of queued, starting (it runs), ended (by itself, well), failed."""
    detail: str = ""
    """In the engine's words."""
    external_id: str = ""
    """The engine's own id; empty = ours."""


class PoolEngine(Protocol):
    """A cluster engine. Methods may take seconds: they are called from a thread of their own, never from a tick.

    All raise ``PoolUnavailable`` (ask again later) or ``PoolRefused`` (a person must change something).
    """

    def submit(self, ask: JobAsk) -> str:
        """Ask for a job; returns the engine's id. Asking for the same ``ask.id`` again gives the job that is there."""
        ...

    def look(self, jobs: Mapping[str, str]) -> dict[str, EngineJob]:
        """What became of jobs (our id -> the engine's); those that the engine does not know are left out."""
        ...

    def stop(self, jobs: Sequence[str]) -> None:
        """End jobs by the engine's ids; ended and unknown ones are fine."""
        ...
