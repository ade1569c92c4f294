"""What the open step has and needs (``GET /swarm/pool``), and the shared queues of tasks that feed it."""

from __future__ import annotations

from pydantic import Field

from swarm.protocol.messages import Message, PolicyVersion
from swarm.protocol.states import CollectionPolicy, EngineState


class WantedTask(Message):
    """A group of the open step with missing members."""

    task_set: str
    task_id: str
    missing: int
    code_hash: str = ""
    """Only a client with this version of the code can fill it."""


class PoolSnapshot(Message):
    """Answer of ``GET /swarm/pool``: what the open step has and needs."""

    step: int
    policy_version: PolicyVersion | None
    state: EngineState
    tasks_target: int
    """B."""
    repeat: int
    """N."""
    groups_complete: int
    groups_open: int
    groups_to_open: int
    """New groups that the server would grant now."""
    episodes_finished: int
    episodes_open: int
    wanted: list[WantedTask]
    task_ids: list[str]
    """``task_set/task_id`` of every group of the open step, in order of opening."""
    policy: CollectionPolicy | None = None
    """Of the open step; None = a server that does not tell."""
    quota_left: dict[str, int] = Field(default_factory=dict[str, int])
    """Under a mix: task_set -> groups of it that may still be opened now (C1: episodes granted), at most ``groups_to_open`` in all. A set that is not named gets none. Empty = no mix."""
    agreed: list[str] = Field(default_factory=list[str])
    """C4 and C5: client ids that agreed to take this step, sorted."""
    agree_missing: list[str] = Field(default_factory=list[str])
    """C4: trainers with a live lease that have not agreed."""
    takeable: bool = False
    """C4 and C5: an agreement would take the step now (something is trainable, or nothing better can come)."""
    exhausted_queues: list[str] = Field(default_factory=list[str])
    """Shared task queues (by task set) that no further group can be opened from."""


class TaskQueue(Message):
    """Body of ``PUT /swarm/task_sets/{name}`` and part of ``GET /swarm/task_sets``: tasks that all clients share.

    The same list again changes nothing; another list while the run goes on replaces what was not handed out.
    """

    task_ids: list[str] = Field(min_length=1)
    seed: int = 0
    """Order: one keyed permutation an epoch."""
    epochs: int | None = Field(default=None, ge=1)
    """How often each task is handed out as a group; None = without end."""


class TaskQueueInfo(Message):
    """Where a shared queue stands."""

    name: str
    size: int
    seed: int
    epochs: int | None
    handed_out: int
    """Groups opened from it so far."""
    waiting_again: int = 0
    """Tasks of lost or left over groups that go out again before the order goes on."""
    exhausted: bool
