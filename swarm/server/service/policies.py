"""Collection policies: what a step still needs, when it is complete, and which groups it consumes.

Pure functions of a pool. C1 counts episodes, C2 complete groups, C3 complete groups whose rewards differ; under C4 and C5 the
trainers say when (``agreement``), and the step takes every complete group. Everything is counted by lot: one for each task set of
a mix, one for all without a mix.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from swarm.protocol.states import CollectionPolicy, GroupRule
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group, Pool
from swarm.server.service.lots import Lot
from swarm.server.service.quotas import sequence

PLENTY = 1 << 30
BY_AGREEMENT = frozenset({CollectionPolicy.C4, CollectionPolicy.C5})
"""Policies under which the trainers say when a step is taken."""
REPLACES_EQUAL = BY_AGREEMENT | {CollectionPolicy.C3}
"""Policies under which a complete group of equal rewards makes room for another one."""


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


# -- what the step still needs ------------------------------------------------------------------------------


def groups_to_open(pool: Pool, task_set: str | None = None) -> int:
    """Return how many new groups may be opened now, in all or for one task set."""
    if task_set is not None:
        return _to_open(pool, pool.lot(task_set))
    return sum(_to_open(pool, lot) for lot in pool.lots.values())


def may_open(pool: Pool, task_set: str) -> bool:
    """Whether a new group may be opened for a task of that set that has no free seat."""
    if pool.batch.policy is CollectionPolicy.C1:
        return episodes_room(pool, task_set) > 0
    return groups_to_open(pool, task_set) > 0


def episodes_room(pool: Pool, task_set: str | None = None) -> int:
    """Return how many more episodes (in all, or of one task set) may be granted before the step has all it can use (C1), or a large number."""
    if pool.batch.policy is not CollectionPolicy.C1:
        return PLENTY
    lots = pool.lots.values() if task_set is None else (pool.lot(task_set),)
    return sum(lot.limit - lot.open - lot.finished for lot in lots)


def seats_room(pool: Pool, task_set: str | None = None) -> int:
    """Return how many episodes could be granted now: free seats and those of groups that may be opened."""
    lots = pool.lots.values() if task_set is None else (pool.lot(task_set),)
    size = pool.batch.repeat
    if pool.batch.policy is CollectionPolicy.C1:
        return sum(max(0, lot.limit - lot.open - lot.finished) for lot in lots)
    return sum(lot.missing + size * _to_open(pool, lot) for lot in lots)


def quota_left(pool: Pool) -> dict[str, int]:
    """Return for each task set of the mix how many groups of it may still be opened (C1: episodes granted); empty without a mix."""
    episodes = pool.batch.policy is CollectionPolicy.C1
    return {
        name: max(0, episodes_room(pool, name)) if episodes else groups_to_open(pool, name)
        for name in pool.shares
    }


def refusal(pool: Pool, task_set: str, free: Group | None) -> str:
    """Return why the pool takes no episode of that task set now; empty when it does. ``free``: a group with a seat for it."""
    if is_ready(pool):
        return f"step {pool.step} has all that it needs"
    if pool.shares and task_set not in pool.shares:
        return f"task set {task_set!r} is not in the mix of step {pool.step}: {_words(pool.shares)}"
    of_set = f" of {task_set!r}" if pool.shares else ""
    if episodes_room(pool, task_set) <= 0:
        return f"step {pool.step} has granted all the episodes{of_set} that it can use"
    if free is None and not may_open(pool, task_set):
        return f"step {pool.step} has opened all the groups{of_set} that it can use"
    return ""


def _to_open(pool: Pool, lot: Lot) -> int:
    if pool.batch.policy is CollectionPolicy.C1:
        return max(0, math.ceil((lot.limit - lot.seats) / pool.batch.repeat))
    equal = lot.completed - lot.trainable if pool.batch.policy in REPLACES_EQUAL else 0
    return max(0, min(lot.limit - lot.alive + equal, lot.tries_left))


# -- when it is complete ------------------------------------------------------------------------------------


def is_ready(pool: Pool) -> bool:
    """Whether the step may stop granting and train."""
    if pool.batch.policy in BY_AGREEMENT:
        return pool.consent() and something_to_take(pool)
    return all(_has_enough(pool, lot) or _gave_up(pool, lot) for lot in pool.lots.values())


def something_to_take(pool: Pool) -> bool:
    """Whether an agreement could take the step: there is a group that would train, or no lot can give anything any more."""
    if any(group.unequal for group in _takeable(pool)):
        return True
    return all(_spent(pool, lot) for lot in pool.lots.values())


def bound_reached(pool: Pool) -> bool:
    """Whether the step lacks groups because it tried all that it may (``max_groups_factor``) and none is still running."""
    return any(
        _gave_up(pool, lot) and not _has_enough(pool, lot) and lot.need
        for lot in pool.lots.values()
    )


def _have(pool: Pool, lot: Lot) -> int:
    """Return what of a lot counts towards the step, in its unit."""
    if pool.batch.policy is CollectionPolicy.C1:
        return lot.finished
    return lot.trainable if pool.batch.policy is CollectionPolicy.C3 else lot.completed


def _has_enough(pool: Pool, lot: Lot) -> bool:
    return _have(pool, lot) >= lot.need


def _gave_up(pool: Pool, lot: Lot) -> bool:
    return pool.batch.policy is not CollectionPolicy.C1 and lot.exhausted


def _spent(pool: Pool, lot: Lot) -> bool:
    """Whether no group of the lot is running and none may be opened: what it has is all that it gives."""
    return lot.alive == lot.completed and not _to_open(pool, lot)


# -- how far it is ------------------------------------------------------------------------------------------


def by_task_set(pool: Pool) -> dict[str, tuple[int, int]]:
    """Return for each task set of the mix ``(has, needs)``, in what its policy counts; empty without a mix."""
    return {name: (_have(pool, pool.lot(name)), pool.lot(name).need) for name in pool.shares}


def in_words(pool: Pool) -> str:
    """Return what the step has of what it needs: ``6 of 8 groups complete (math 3 of 4, code 3 of 4)``."""
    what = "groups complete"
    if pool.batch.policy is CollectionPolicy.C1:
        what = "episodes finished"
    elif pool.batch.policy is CollectionPolicy.C3:
        what = "groups complete with rewards that differ"
    have = sum(_have(pool, lot) for lot in pool.lots.values())
    need = sum(lot.need for lot in pool.lots.values())
    sets = ", ".join(f"{name} {h} of {n}" for name, (h, n) in by_task_set(pool).items())
    return f"{have} of {need} {what}" + (f" ({sets})" if sets else "")


def _words(shares: Iterable[str]) -> str:
    return ", ".join(map(repr, shares))


# -- what it consumes ---------------------------------------------------------------------------------------


def choose(pool: Pool) -> Choice:
    """Choose what a ready step consumes, in order of completion.

    C2 and C3: the first groups of each lot, up to its need. C1: the first episodes of each lot. C4 and C5: all that is complete
    (rule ``partial``: also groups that have at least two members), under a mix as many as are in its exact shares.
    """
    if pool.batch.policy is CollectionPolicy.C1:
        return _choose_episodes(pool)
    if pool.batch.policy in BY_AGREEMENT:
        chosen = _takeable(pool)
        return _choice(pool, chosen, [])
    candidates, equal = pool.completed, list[Group]()
    if pool.batch.policy is CollectionPolicy.C3:
        equal = [g for g in candidates if not g.unequal]
        candidates = [g for g in candidates if g.unequal]
    room = {name: lot.need for name, lot in pool.lots.items()}
    return _choice(pool, _first(pool, candidates, room), equal)


def untouched_shared(pool: Pool, choice: Choice) -> list[tuple[str, str]]:
    """Return ``(task_set, task_id)`` of the shared groups that the choice takes nothing of: the tasks are to come again."""
    touched = {group_id for group_id, _ in choice.groups} | {e.group_id for e in choice.equal}
    left = (g for g in pool.alive() if g.shared and g.group_id not in touched)
    return [(group.task_set, group.task_id) for group in left]


def _choice(pool: Pool, chosen: list[Group], equal: list[Group]) -> Choice:
    taken = {id(g) for g in chosen} | {id(g) for g in equal}
    left = [g for g in pool.alive() if id(g) not in taken]
    return Choice(
        groups=[(g.group_id, _members(g)) for g in chosen],
        equal=[e for g in equal for e in _members(g)],
        leftovers=[e for g in left for e in _members(g)],
    )


def _first(pool: Pool, groups: Iterable[Group], room: dict[str, int]) -> list[Group]:
    """Return the first groups of each lot, at most ``room`` of each; ``room`` is used up."""
    chosen: list[Group] = []
    for group in groups:
        name = group.task_set if pool.shares else ""
        if room.get(name, 0) > 0:
            room[name] -= 1
            chosen.append(group)
    return chosen


def _takeable(pool: Pool) -> list[Group]:
    """Return what an agreement would take now."""
    candidates = list(pool.completed)
    if pool.batch.group_rule is GroupRule.PARTIAL:
        candidates += [g for g in pool.alive() if not g.complete and len(g.finished) >= 2]
    if not pool.shares:
        return candidates
    there = Counter(group.task_set for group in candidates)
    room: Counter[str] = Counter()
    limit = sum(lot.limit for lot in pool.lots.values())
    for name in sequence(pool.shares, pool.owed, limit + len(candidates)):
        if room[name] < there[name]:
            room[name] += 1
        elif not _spent(pool, pool.lot(name)):
            break  # the next group of the mix is still to come, so what follows it waits
    return _first(pool, candidates, room)


def _choose_episodes(pool: Pool) -> Choice:
    room = {name: lot.need for name, lot in pool.lots.items()}
    chosen: set[int] = set()
    for episode in pool.finish_order:
        name = episode.task_set if pool.shares else ""
        if room.get(name, 0) > 0:
            room[name] -= 1
            chosen.add(id(episode))
    groups = [(g.group_id, [e for e in _members(g) if id(e) in chosen]) for g in pool.alive()]
    return Choice(
        groups=[(group_id, members) for group_id, members in groups if members],
        leftovers=[e for e in pool.finish_order if id(e) not in chosen],
    )


def _members(group: Group) -> list[Episode]:
    return [group.finished[i] for i in sorted(group.finished)]
