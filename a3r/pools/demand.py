"""How many workers to ask of which pool. Pure.

Only what no worker that lives can take is asked for, and a worker that is on its way counts: an engine that takes an hour
to start a job is not asked twice for the same runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from a3r.core.placement import Need
from a3r.store.rows import RoomRow, WaitingRow

PATIENCE_S = 3.0
"""A free worker takes an attempt within this: what is younger does not wait yet."""
STUCK_S = 60.0
"""An attempt that waits so long gets no room counted that only the table sees: the worker measures less than it has (busy GPUs)."""


@dataclass(frozen=True, slots=True)
class Supply:
    """One pool."""

    name: str
    slots: int
    """Of one worker."""
    gpus: int
    coming: int
    """Jobs whose worker has not come yet."""
    may_ask: int
    """Further jobs that may be asked for now."""

    def fits(self, need: Need) -> bool:
        """Whether one worker of the pool can hold the attempt."""
        return need.slots <= self.slots and need.gpus <= self.gpus


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows."""

    ask: Mapping[str, int]
    """Pool -> further workers to ask for; every pool is there."""
    spare: Mapping[str, int]
    """Pool -> workers on their way that nothing waits for."""
    unfit: int
    """Waiting attempts that no pool's worker could ever hold."""


@dataclass
class _Box:
    """Room of one worker, there or to come."""

    slots: int
    gpus: int
    pool: str = ""
    used: bool = False

    def take(self, need: Need) -> bool:
        if need.slots > self.slots or need.gpus > self.gpus:
            return False
        self.slots, self.gpus, self.used = self.slots - need.slots, self.gpus - need.gpus, True
        return True


def plan(
    waiting: Sequence[WaitingRow], rooms: Iterable[RoomRow], pools: Sequence[Supply], now: float
) -> Plan:
    """First fit, oldest attempt first: into workers that live, then into those that come, then into new ones of the first pool."""
    there = [_Box(r.slots, r.gpus) for r in rooms]
    coming = [_Box(p.slots, p.gpus, p.name) for p in pools for _ in range(p.coming)]
    left = {p.name: p.may_ask for p in pools}
    asked: list[_Box] = []
    unfit = 0
    for attempt in waiting:
        waited_s = now - attempt.queued_at
        if waited_s < STUCK_S and _put(attempt.need, there):
            continue
        if waited_s < PATIENCE_S or _put(attempt.need, [*coming, *asked]):
            continue
        fitting = [p for p in pools if p.fits(attempt.need)]
        unfit += not fitting
        pool = next((p for p in fitting if left[p.name] > 0), None)
        if pool is not None:
            left[pool.name] -= 1
            asked.append(_Box(pool.slots, pool.gpus, pool.name))
            asked[-1].take(attempt.need)
    return Plan(
        ask={p.name: sum(b.pool == p.name for b in asked) for p in pools},
        spare={p.name: sum(b.pool == p.name and not b.used for b in coming) for p in pools},
        unfit=unfit,
    )


def _put(need: Need, boxes: Iterable[_Box]) -> bool:
    return any(box.take(need) for box in boxes)
