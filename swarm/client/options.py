"""How ``run_episodes`` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm.client.errors import ClientUsageError
from swarm.client.tasks import Task


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
