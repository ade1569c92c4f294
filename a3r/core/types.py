"""Closed sets and small values that every part of a3r shares."""

from __future__ import annotations

from enum import StrEnum


class CampaignState(StrEnum):
    """Life of a campaign; ``done`` and ``stopped`` are final."""

    PLANNING = "planning"
    AWAITING_REVIEW = "awaiting_review"
    RUNNING = "running"
    PAUSED = "paused"
    BLOCKED = "blocked"  # needs a person: the reason is in ``failure``
    CONCLUDING = "concluding"  # the report is being written
    DONE = "done"
    STOPPED = "stopped"


class ReviewMode(StrEnum):
    """Who must approve before dispatch."""

    STAGE = "stage"  # a person approves each stage's blueprints (default)
    ALL = "all"  # ... and each later client revision
    NONE = "none"  # nobody; must be asked for, and the report says so


class ReviewStatus(StrEnum):
    """Of one blueprint version. A time-out never changes it."""

    PENDING = "pending"
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    REJECTED = "rejected"


class StageState(StrEnum):
    """Life of a stage."""

    PLANNED = "planned"
    RUNNING = "running"
    ANALYSED = "analysed"
    ABANDONED = "abandoned"


class RunState(StrEnum):
    """Blueprint x seed."""

    PENDING = "pending"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """One try of a run on one host. ``unreachable`` is not terminal; terminal states are final."""

    QUEUED = "queued"
    LEASED = "leased"
    PREPARING = "preparing"
    RUNNING = "running"
    EVALUATING = "evaluating"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


TERMINAL_RUNS = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
TERMINAL_ATTEMPTS = frozenset(
    {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST}
)


class FailureClass(StrEnum):
    """Why an attempt or a process failed; decides what may be tried next (``a3r.worker.failures``)."""

    IMPORT = "import_error"  # permanent
    SYNTAX = "syntax_error"  # permanent
    CONFIG = "config_invalid"  # permanent
    DATA_MISSING = "data_missing"  # permanent
    CLIENT_CRASH = "client_crash"  # restart the client only
    SERVER_CRASH = "server_crash"  # restart the server with --resume
    EVALUATOR_CRASH = "evaluator_crash"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"  # blocks: a person must make room
    PORT_TAKEN = "port_taken"
    AUTH = "auth"  # blocks
    OUT_OF_CREDIT = "out_of_credit"  # blocks
    NAN = "not_finite"
    STALL = "stall"  # a deadline without progress
    MAX_TIME = "max_time"
    STOPPED = "stopped"  # somebody asked
    HOST_LOST = "host_lost"
    KILLED = "killed"  # by a signal that we did not send
    RATE_LIMIT = "rate_limited"  # waits with back-off
    EXTERNAL_DOWN = "external_model_down"  # blocks: a cheap probe resumes it
    SCHEDULER = "killed_by_scheduler"  # the cluster took the host back: a new attempt
    STOP_RULE = "stop_rule"  # of the blueprint, with outcome ``fail``
    ENVIRONMENT = "environment_failed"  # this host lacks something; another may have it
    UNKNOWN = "unknown"


class JobState(StrEnum):
    """Of long work of the leader; ``done`` and ``failed`` are final."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # for a provider, until ``not_before``; the reason is in ``detail``
    DONE = "done"
    FAILED = "failed"  # a person must look; ``detail`` says why


class CallState(StrEnum):
    """Of one call of a language model."""

    RESERVED = (
        "reserved"  # written before it is sent; found so after a crash: settled at its full reserve
    )
    SETTLED = "settled"
    FAILED = "failed"  # no reply; what it cost is settled


class RevisionState(StrEnum):
    """Of a changed client."""

    PENDING = "pending"  # waits for a person (review mode ``all``)
    APPROVED = "approved"
    REJECTED = "rejected"


class CommandState(StrEnum):
    """Of something that a worker is asked for."""

    OPEN = "open"  # repeated on every heartbeat until answered
    DONE = "done"
    FAILED = "failed"  # the worker could not; ``result["error"]`` says why


class WorkerState(StrEnum):
    """What a person wants of a worker."""

    ACTIVE = "active"
    DRAINING = "draining"  # finishes what it has, claims no more
    REMOVED = "removed"


class HostState(StrEnum):
    """What a person wants of a host that was added over SSH."""

    ACTIVE = "active"
    REMOVING = "removing"  # its worker finishes what it has and leaves; then the host is forgotten


class LinkState(StrEnum):
    """How the daemon's connection to a host is."""

    WAITING = "waiting"  # not tried yet, or being made
    UP = "up"
    BROKEN = "broken"  # tried again, ever more slowly


class Direction(StrEnum):
    """Which way a metric improves."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"
