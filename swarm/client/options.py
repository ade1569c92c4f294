"""How ``run_episodes`` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm.client.errors import ClientUsageError
from swarm.client.tasks import Task
from swarm.protocol.pool import PoolSnapshot


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The keyword arguments of ``run_episodes``."""

    task_set: str = "default"
    """Name of the tasks on the server; clients with different sets never serve each other's groups."""
    repeat: int | None = None
    """Members asked for in a new group; None = the server's N."""
    parallel: int = 32
    """Episodes at once at most."""
    data_seed: int = 0
    """Order of the tasks."""
    resume: bool = False
    """Go on where the server's cursor of this client (its ``client_id``) stands: a ``TaskStream`` is read past what was taken, and
    another ``data_seed`` is refused. False: a stream begins anew."""
    shared: bool = False
    """Take tasks from the server's queue of ``task_set``, so that clients with the same list work through it together."""
    epochs: int | None = None
    """With ``shared``: how often each task is handed out as a group; None = without end."""
    throttle: float | None = None
    """Wait while this client has taken more than this times its fair share of the open step; None = never. At least 1."""
    code_hash: str | None = None
    """Version of agent, environment and reward; groups never mix two. None = the client's own, else a hash of the agent's
    source file and what it imports beside it; empty = not told."""
    agree_when: Callable[[PoolSnapshot], bool] | None = None
    """Under the policies C4 and C5: agree to take the open step once this says so of the pool (looked at after episodes end, and
    every few seconds). None: once the pool could be taken, needs nothing more of this client, and none of its episodes run."""
    until_step: int | None = None
    """Stop once the server's step is this; None = until training is complete."""
    max_consecutive_failures: int = 50
    """Give up after this many failures without one success in between."""
    episode_timeout_s: float = 1800.0
    """An agent that takes longer is given up and its episode aborted."""
    stall_timeout_s: float = 1800.0
    """Give up when no episode ends and no step completes for this long."""
    unreachable_timeout_s: float = 300.0
    """How long the server may be away (a restart) before the run gives up."""
    on_error: Callable[[Task, BaseException], Any] | None = None
    """Called with each failure, on the event loop."""
    on_step: Callable[[int], Any] | None = None
    """Called (and awaited, if async) when a step is first seen, before its tasks are planned."""

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        if self.parallel < 1 or (self.repeat is not None and self.repeat < 1):
            raise ClientUsageError(
                f"parallel={self.parallel!r} and repeat={self.repeat!r} must be at least 1.",
                hint="Leave repeat out to take the server's.",
            )
        if self.throttle is not None and self.throttle < 1:
            raise ClientUsageError(
                f"throttle={self.throttle!r} is less than 1, the fair share itself.",
                hint="1.0 keeps this client at its share; larger lets it lead by that factor; None never waits.",
            )
        if self.epochs is not None and (self.epochs < 1 or not self.shared):
            raise ClientUsageError(
                f"epochs={self.epochs!r} needs shared=True and at least 1.",
                hint="Bound a stream with TaskStream(source, epochs=...); training itself ends at stop_at_step.",
            )
