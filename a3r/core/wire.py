"""What a worker and the hub say to each other (``/worker/v1/...``), and what the CLI asks (``/api/v1/...``).

Worker and leader meet only here. Unknown fields are tolerated; every write carries the attempt's fencing token.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from a3r.core.types import AttemptState, FailureClass, WorkerState

PROTOCOL = 1
"""Of ``/worker/v1``; a worker that speaks another is refused when it registers, in words."""


WorkerId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,99}$")]
"""It is printed in tables and stands in paths."""
Word = Annotated[str, Field(min_length=1, max_length=100)]
LAST_SECOND = 253_402_300_799.0
"""Of the year 9999: no later time can be written as a date."""


class Message(BaseModel):
    """A wire message."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class WorkerRegistration(Message):
    """``POST /worker/v1/register``. Safe to repeat; the same id is the same worker restarted."""

    worker_id: WorkerId
    host: str = Field(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")
    pid: int
    slots: int = Field(ge=0)
    """Attempts at once; a person can set it, the default is the number of CPU cores (at least 1) or GPUs."""
    inventory: dict[str, Any] = Field(default_factory=dict[str, Any])
    """``cpus``, ``memory_bytes``, ``disk_free_bytes``, ``gpus`` (index, uuid, name, memory_mb), ``software`` (name -> version)."""
    protocol: int = PROTOCOL
    pool: str = ""
    """The pool that asked for this worker, with ``pool_job``; empty: a person or the daemon started it."""
    pool_job: str = ""

    @field_validator("inventory")
    @classmethod
    def _gpus_are_a_list(cls, value: dict[str, Any]) -> dict[str, Any]:
        gpus: Any = value.get("gpus") or []
        listed = isinstance(gpus, list)
        if not (listed and all(isinstance(gpu, dict) for gpu in cast("list[Any]", gpus))):
            raise ValueError("'gpus' is a list with an object for each GPU")
        return value


class WorkerWelcome(Message):
    """Answer to registration."""

    worker_id: str
    heartbeat_s: float
    lease_s: float
    hub_epoch: str
    """Changes when the daemon restarts."""


class EnlistRequest(Message):
    """``POST /worker/v1/enlist`` with a pool job's ticket as the bearer."""

    pool_job: str


class EnlistReply(Message):
    """The token of the job's worker; the ticket is spent."""

    token: str


class ClaimRequest(Message):
    """``POST /worker/v1/claim``: long-polled up to ``wait_s`` seconds."""

    worker_id: WorkerId
    free_slots: int
    wait_s: float = 10.0
    free_gpus: list[int] = Field(default_factory=list[int])
    """Indices of GPUs that were just measured free and that no attempt of this worker holds."""
    co_tenants: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """Foreign processes on this host that use its GPUs (``gpu``, ``pid``, ``name``, ``memory_mb``); recorded with the run."""
    held: list[str] | None = None
    """Attempts that the worker has. One that it was given and that is not among them is given again: the answer was lost."""


class AttemptSpec(Message):
    """Everything that a worker needs to run one attempt."""

    attempt_id: str
    run_id: str
    campaign_id: str
    label: str
    """Short human name, e.g. ``s1-b16-cap10 seed 3``."""
    ordinal: int
    nonce: str
    fencing_token: int
    lease_s: float
    seed: int
    blueprint: dict[str, Any]
    """``a3r.blueprints.model.Blueprint`` as JSON."""
    client_artifact: str
    """sha256 of a tar of the client folder, fetched from ``GET /worker/v1/artifacts/{sha256}``."""
    client_tree_hash: str = ""
    """Tree hash of that folder when a revision replaced the blueprint's client; empty: the blueprint's own."""
    revision: int = 0
    """Ordinal of the client revision; 0 = the blueprint's own client."""
    gpus: list[int] = Field(default_factory=list[int])
    """Indices of the GPUs that are leased to the attempt."""
    artifacts: dict[str, str] = Field(default_factory=dict[str, str])
    """More artifacts by role: ``evaluator`` (a tar of the sealed evaluator's folder), ``client:<name>`` of further clients."""


class ClaimReply(Message):
    """None = nothing to do."""

    attempt: AttemptSpec | None = None


class AttemptReport(Message):
    """One attempt's line in a heartbeat."""

    attempt_id: str
    fencing_token: int
    state: AttemptState
    step: int | None = None
    detail: str = ""
    """What it is doing, in words."""


class HeartbeatRequest(Message):
    """``POST /worker/v1/heartbeat``: renews the leases of the attempts listed; held up to ``wait_s`` for commands."""

    worker_id: WorkerId
    attempts: list[AttemptReport]
    wait_s: float = 0.0
    trouble: str = ""
    """Why the worker takes nothing new, in words: its disk is full. Empty = it takes work."""


class Command(Message):
    """What the hub wants of a worker."""

    kind: Literal["stop_attempt", "forget_attempt", "fetch_log", "fetch_trace"]
    attempt_id: str = ""
    reason: str = ""
    id: int = 0
    """Of a command that wants an answer (``POST /worker/v1/commands/{id}``); it is repeated until answered."""
    args: dict[str, Any] = Field(default_factory=dict[str, Any])
    """fetch_log: ``name``, ``offset``, ``limit`` (bytes). fetch_trace: ``episode_id``."""


class HeartbeatReply(Message):
    """Commands are repeated until the attempt is terminal, so a lost reply costs nothing."""

    commands: list[Command] = Field(default_factory=list[Command])
    hub_epoch: str = ""
    wanted: WorkerState = WorkerState.ACTIVE
    """What a person wants of this worker. draining: it gets nothing new. removed: it leaves once its attempts are over."""


class EventReport(Message):
    """One event of an attempt; ``seq`` counts from 0 per attempt and makes a repeat harmless."""

    seq: int = Field(ge=0)
    at: float = Field(ge=0, le=LAST_SECOND)
    actor: Word
    """``worker``, ``server``, ``client``, ``evaluator``."""
    kind: Word
    """e.g. ``process_started``, ``process_exited``, ``client_restarted``, ``first_step``, ``deviation``."""
    data: dict[str, Any] = Field(default_factory=dict[str, Any])


class EventsRequest(Message):
    """``POST /worker/v1/attempts/{id}/events``."""

    fencing_token: int
    events: list[EventReport]


class StepsRequest(Message):
    """``POST /worker/v1/attempts/{id}/steps``: swarm StepMetrics as JSON, keyed by step, repeats are harmless."""

    fencing_token: int
    steps: list[dict[str, Any]]


class EvalItem(Message):
    """One held-out item of one evaluation round, scored by the sealed evaluator from the server's trace."""

    item_id: str
    reward: float | None
    """None = missing (the episode failed); never 0."""
    policy_version: int | None
    """The version that every call of the episode used; None if missing or mixed."""
    calls: int
    truncated_calls: int
    reason: str = ""


class EvalRound(Message):
    """``POST /worker/v1/attempts/{id}/evals``: one complete round, keyed by name."""

    fencing_token: int
    name: str
    """``initial`` (version 0), ``final``, or ``step-<k>``."""
    step: int
    policy_version: int
    planned: int
    item_set_hash: str
    evaluator_hash: str
    fingerprint: str
    items: list[EvalItem]


class LogChunk(Message):
    """``POST /worker/v1/attempts/{id}/logs``: raw bytes (base64) at an offset; overlapping repeats are harmless."""

    fencing_token: int
    name: str
    """``server``, ``client``, ``evaluator``, ``environment``, ``server-<name>``, ..."""
    offset: int
    data_b64: str


class FinishReport(Message):
    """``POST /worker/v1/attempts/{id}/finish``. A stale fencing token is answered 409 and the result is not accepted."""

    fencing_token: int
    outcome: Literal["succeeded", "failed", "cancelled"]
    failure: FailureClass | None = None
    reason: str = ""
    summary: dict[str, Any] = Field(default_factory=dict[str, Any])
    """seed proven from the server's own record, steps, version, fingerprints, generations, wall and CPU seconds."""


class CommandAnswer(Message):
    """``POST /worker/v1/commands/{id}``: what a command brought; a repeat is harmless."""

    worker_id: str
    ok: bool
    result: dict[str, Any] = Field(default_factory=dict[str, Any])
    """``data_b64`` and ``offset`` of a log, ``trace`` of an episode, ``error`` when not ok."""
