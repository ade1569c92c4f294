"""Groups that nobody fills: their player left for good, and the step must not wait for it for ever.

A group with missing seats belongs to whoever plays its task. When nobody has taken a seat of it for ``batch.abandon_after_s``,
although trainers are there and grants are possible, it is dropped and another task goes in its place; the drop uses up no try.
"""

from __future__ import annotations

from swarm.protocol.states import EngineState, FateReason, Role
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.groups import Group

Standing = tuple[int, int]
"""Finished and given-up seats: what changes when somebody plays."""


class Abandoned:
    """Watches the groups of the open step; ``look`` is called often and costs little while every group is being played."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings
        self._since: dict[str, tuple[Standing, float]] = {}
        """Group with missing seats and nobody at play -> how it stood, and since when (monotonic seconds)."""

    def look(self) -> bool:
        """Drop what was left for too long; returns whether anything was."""
        core = self._core
        now = core.clock.monotonic()
        if not self._could_be_filled():
            self._since.clear()
            return False
        waiting = [g for g in core.pool.alive() if g.missing > 0 and not g.open]
        before, self._since = self._since, {}
        for group in waiting:
            standing = (len(group.finished), group.forgone)
            known = before.get(group.group_id)
            since = known[1] if known is not None and known[0] == standing else now
            self._since[group.group_id] = (standing, since)
        patience = core.config.batch.abandon_after_s
        late = [g for g in waiting if now - self._since[g.group_id][1] >= patience]
        for group in late:
            self._drop(group, patience)
        return bool(late)

    def _could_be_filled(self) -> bool:
        """Whether grants are possible and some trainer is there: else nobody can be blamed for an empty seat."""
        core = self._core
        return (
            core.configured is not None
            and core.lifecycle.state is EngineState.ROLLING
            and not core.evals.holds(core.step)
            and not policies.is_ready(core.pool)
            and bool(core.clients.live(Role.TRAINER))
        )

    def _drop(self, group: Group, patience: float) -> None:
        why = f"{FateReason.ABANDONED.value}: nobody took a seat of its group for {patience:g} s"
        self._endings.discard_group(group, FateReason.ABANDONED, why)
        del self._since[group.group_id]
