"""Collection policies: what a step still needs, when it is complete, and which groups it consumes.

Pure functions of a pool. C1 counts episodes, C2 complete groups, C3 complete groups whose rewards differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from swarm.protocol.states import CollectionPolicy
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group, Pool


@dataclass(slots=True)
class Choice:
    """What the step consumes; ``members`` of a group are in order of repeat index."""

    groups: list[tuple[str, list[Episode]]] = field(default_factory=list[tuple[str, list[Episode]]])
    equal: list[Episode] = field(default_factory=list[Episode])
    """Complete but untrainable under C3: rewards all equal."""
    leftovers: list[Episode] = field(default_factory=list[Episode])
    """Finished, but not part of the batch."""

    @property
    def episodes(self) -> list[Episode]:
        """All consumed episodes in order."""
        return [e for _, members in self.groups for e in members]


def groups_to_open(pool: Pool) -> int:
    """Return how many new groups may be opened now."""
    batch = pool.batch
    if batch.policy is CollectionPolicy.C1:
        limit = math.ceil(pool.target * batch.repeat * batch.oversample)
        seats = pool.open_seats + len(pool.finish_order) + sum(g.missing for g in pool.alive())
        return max(0, math.ceil((limit - seats) / batch.repeat))
    limit = math.ceil(pool.target * batch.oversample)
    alive = len(pool.groups) - pool.dropped
    equal = len(pool.completed) - pool.trainable if batch.policy is CollectionPolicy.C3 else 0
    return max(0, min(limit - alive + equal, _groups_left(pool)))


def may_open(pool: Pool) -> bool:
    """Whether a new group may be opened for a task that has no free seat."""
    if pool.batch.policy is CollectionPolicy.C1:
        return episodes_room(pool) > 0
    return groups_to_open(pool) > 0


def episodes_room(pool: Pool) -> int:
    """Return how many more episodes may be granted before the step has all it can use (C1), or a large number."""
    if pool.batch.policy is not CollectionPolicy.C1:
        return 1 << 30
    taken = pool.open_seats + len(pool.finish_order)
    return math.ceil(pool.target * pool.batch.repeat * pool.batch.oversample) - taken


def is_ready(pool: Pool) -> bool:
    """Whether the step may stop granting and train."""
    if pool.target == 0:
        return True
    if pool.batch.policy is CollectionPolicy.C1:
        return len(pool.finish_order) >= pool.target * pool.batch.repeat
    if pool.batch.policy is CollectionPolicy.C2:
        return len(pool.completed) >= pool.target or bound_reached(pool)
    return pool.trainable >= pool.target or bound_reached(pool)


def bound_reached(pool: Pool) -> bool:
    """Whether C2 or C3 tried all the groups it may (``max_groups_factor``) and none is still running."""
    if pool.batch.policy is CollectionPolicy.C1:
        return False
    return _groups_left(pool) <= 0 and all(g.complete for g in pool.alive())


def choose(pool: Pool) -> Choice:
    """Choose what a ready step consumes: under C2 and C3 the first B groups by completion, under C1 the first B x N episodes."""
    if pool.batch.policy is CollectionPolicy.C1:
        return _choose_episodes(pool)
    candidates = pool.completed
    equal: list[Group] = []
    if pool.batch.policy is CollectionPolicy.C3:
        equal = [g for g in candidates if not g.unequal]
        candidates = [g for g in candidates if g.unequal]
    chosen = candidates[: pool.target]
    taken = {id(g) for g in chosen} | {id(g) for g in equal}
    left = [g for g in pool.alive() if id(g) not in taken]
    return Choice(
        groups=[(g.group_id, _members(g)) for g in chosen],
        equal=[e for g in equal for e in _members(g)],
        leftovers=[e for g in left for e in _members(g)],
    )


def _choose_episodes(pool: Pool) -> Choice:
    count = pool.target * pool.batch.repeat
    chosen = {id(e) for e in pool.finish_order[:count]}
    groups = [(g.group_id, [e for e in _members(g) if id(e) in chosen]) for g in pool.alive()]
    return Choice(
        groups=[(group_id, members) for group_id, members in groups if members],
        leftovers=pool.finish_order[count:],
    )


def _members(group: Group) -> list[Episode]:
    return [group.finished[i] for i in sorted(group.finished)]


def _groups_left(pool: Pool) -> int:
    factor = max(pool.batch.max_groups_factor, pool.batch.oversample)
    return math.ceil(pool.batch.tasks * factor) - len(pool.groups)
