"""What a client says of itself, and the controller lease: requests and replies of ``/swarm/clients`` and ``/swarm/controller``."""

from __future__ import annotations

from pydantic import Field, field_validator

from swarm.protocol.messages import Message, Status
from swarm.protocol.states import Role

CLIENT_HEADER = "x-swarm-client"
"""Header of every control request: the (percent-encoded) client id of who asks, for the record and for the controller lease."""


class ControllerLease(Message):
    """Answer of ``POST /swarm/controller``: until the lease ends only this client configures, starts and stops.

    Its heartbeats renew the lease.
    """

    client_id: str
    lease_s: float


class ControllerRequest(Message):
    """Body of ``POST /swarm/controller``. 409 while another client holds a live lease."""

    client_id: str = Field(min_length=1, max_length=128)
    """Printable, without blanks at its ends: the header that says who asks carries no other."""
    release: bool = False
    """Give the lease back instead."""

    @field_validator("client_id")
    @classmethod
    def _tellable(cls, value: str) -> str:
        if not value.isprintable() or value != value.strip():
            msg = f"{value!r} has unprintable characters, or blanks at its ends"
            raise ValueError(msg)
        return value


class TaskCursor(Message):
    """Where a client stands in its order of tasks; kept by the server for it (``run_episodes(resume=True)``)."""

    task_set: str = "default"
    data_seed: int = 0
    position: int = 0
    """Tasks taken so far from an ordered source."""
    step: int = 0
    """Server step when it was told."""


class ClientRegistration(Message):
    """Body of ``POST /swarm/clients``."""

    client_id: str = Field(min_length=1, max_length=128)
    """Chosen by the client; registering the same id again is a restart and aborts its open episodes."""
    role: Role = Role.TRAINER
    code_hash: str = Field(default="", max_length=64)
    """Names the version of the client's code (agent, environment, reward); groups never mix two. Empty = not told."""
    instance: str = Field(default="", max_length=64)
    """Names this life of the client. The same id with the same instance again is no restart (an answer was lost, a lease ended); empty = always a restart."""


class ClientLease(Message):
    """Answer of register and heartbeat; the client must heartbeat before the lease ends."""

    client_id: str
    lease_s: float
    status: Status
    cursor: TaskCursor | None = None
    """Where this client's task order stands, as it last told; None = never told in this run."""
    cursors: list[TaskCursor] = Field(default_factory=list[TaskCursor])
    """The same for each of its task sets, in order of their names."""


class Heartbeat(Message):
    """Body of ``POST /swarm/clients/{id}/heartbeat``; may be left out."""

    instance: str = Field(default="", max_length=64)
    """As in ``ClientRegistration``. A replaced instance is answered 409 and does not renew its successor's lease."""


class AgreeRequest(Message):
    """Body of ``POST /swarm/clients/{id}/agree``: train on what the pool has (policies C4 and C5). Idempotent."""

    for_step: int
    """Status ``step`` that the agreement is for; one for a step that has passed is answered 409."""


class AgreeReply(Message):
    """Who agreed so far."""

    step: int
    agreed: list[str]
    """Client ids, sorted."""
    missing: list[str]
    """Trainers with a live lease that have not agreed (C4 waits for them)."""
    fires: bool
    """Whether the step is taken with this."""


class ClientInfo(Message):
    """One registered client, as ``GET /swarm/clients`` lists it. Counts are of this server process's life."""

    client_id: str
    role: Role
    code_hash: str = ""
    registered_at: float
    """Unix seconds."""
    last_seen_s: float
    """Seconds since it last said something."""
    lease_left_s: float
    open: int = 0
    finished: int = 0
    contributed: int = 0
    """Train episodes that a step consumed."""
    failed: int = 0
    """Aborted by the client, expired, or lost with its lease."""
    calls: int = 0
    sampled_tokens: int = 0
    latency_mean_s: float | None = None
    """Grant to finish, mean over finished episodes; None = none finished."""
    cursor: TaskCursor | None = None
