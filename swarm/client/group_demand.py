"""What several servers need at the same time: their pools as one pool. Pure.

An episode of a group takes a seat on every server that trains, so only what all of them would grant is demand. Servers with
different batches, policies and paces need different things; sooner or later their needs meet again, because a server whose
step is full goes on to the next one and wants new groups. Where they cannot meet (each wants members of groups that the others
have completed, and nobody plays any more), the first one is served alone and the others play along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pydantic import Field

from swarm.client.planning import groups_to_open
from swarm.protocol.pool import PoolSnapshot, WantedTask
from swarm.protocol.states import CollectionPolicy, EngineState

Key = tuple[str, str, str]


class GroupPool(PoolSnapshot):
    """What several servers need together, as if it were one server's pool. Its ``step`` is the lead's."""

    plan_steps: list[tuple[int, int]] = Field(default_factory=list[tuple[int, int]])
    """(step, groups a step) that tasks are planned by. The first is now; it goes on counting when the lead is trained and the next
    server leads. The others are where earlier leads stopped: a slower server may still want tasks from there."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One pool for a planner, and who plays along."""

    pool: GroupPool
    guests: frozenset[str]
    """Servers that do not train what is planned from this."""
    steps: dict[str, int]
    """Server -> the open step that the plan is for, of those that train it."""


def demand_of(pools: Mapping[str, PoolSnapshot], *, stop_at_first: bool = False) -> Demand:
    """Merge the pools of the servers that may train (in order; the first that is not TRAINED leads).

    Args:
        pools: by server, at least one.
        stop_at_first: TRAINED is said once one server is; else once all are.
    """
    active = {s: p for s, p in pools.items() if p.state is not EngineState.TRAINED}
    trained = frozenset(pools) - set(active)
    lead = _group_pool(pools)
    if not active or (stop_at_first and trained):
        ended = lead.model_copy(update={"state": EngineState.TRAINED})
        return Demand(ended, trained, {})
    steps = {s: p.step for s, p in active.items()}
    waiting = [p.state for p in active.values() if p.state is not EngineState.ROLLING]
    if waiting:
        # OFFLINE is told before anything that passes by itself.
        state = EngineState.OFFLINE if EngineState.OFFLINE in waiting else waiting[0]
        return Demand(_empty(lead, state, active), trained, steps)
    merged = _merge(lead, active)
    met = bool(merged.wanted or merged.groups_to_open)
    # A server that needs nothing and has nobody playing goes on by itself; one with an open episode may hear of it soon.
    stuck = all((p.wanted or p.groups_to_open) and not p.episodes_open for p in active.values())
    if met or not stuck:
        return Demand(merged, trained, steps)
    return _alone(lead, active, trained)


def _group_pool(pools: Mapping[str, PoolSnapshot]) -> GroupPool:
    """The lead's pool (the last server's when all are trained), with what tasks are planned by."""
    every = list(pools.values())
    trained = [p.state is EngineState.TRAINED for p in every]
    at = min(trained.index(False) if False in trained else len(every), len(every) - 1)
    before = [*accumulate((p.step for p in every[:at]), initial=0)]
    past = [(end - 1, p.tasks_target) for end, p in zip(before[1:], every, strict=False)]
    now = (before[-1] + every[at].step, every[at].tasks_target)
    return GroupPool.model_validate({**dict(every[at]), "plan_steps": [now, *reversed(past)]})


def _empty(lead: GroupPool, state: EngineState, active: Mapping[str, PoolSnapshot]) -> GroupPool:
    nothing: dict[str, Any] = {"wanted": [], "groups_to_open": 0, "quota_left": {}}
    return lead.model_copy(update={**nothing, "state": state, "task_ids": _task_ids(active)})


def _merge(lead: GroupPool, active: Mapping[str, PoolSnapshot]) -> GroupPool:
    missing = [_missing(p) for p in active.values()]
    keys = dict.fromkeys(key for one in missing for key in one)
    wanted: list[WantedTask] = []
    for key in keys:
        seats = min(
            one.get(key) or (pool.repeat if groups_to_open(pool, key[0]) else 0)
            for one, pool in zip(missing, active.values(), strict=True)
        )
        if seats:
            task_set, task_id, code_hash = key
            wanted.append(
                WantedTask(task_set=task_set, task_id=task_id, missing=seats, code_hash=code_hash)
            )
    sets = sorted({name for p in active.values() for name in p.quota_left})
    quotas = {n: min(groups_to_open(p, n) for p in active.values()) for n in sets}
    room = min(p.groups_to_open for p in active.values())
    return lead.model_copy(
        update={
            "wanted": wanted,
            "groups_to_open": min(room, sum(quotas.values())) if quotas else room,
            "quota_left": quotas,
            # A planner reads quotas under C1 as episodes; these are groups.
            "policy": None if lead.policy is CollectionPolicy.C1 else lead.policy,
            "repeat": min(p.repeat for p in active.values()),
            "task_ids": _task_ids(active),
            "exhausted_queues": sorted({q for p in active.values() for q in p.exhausted_queues}),
            "episodes_open": max(p.episodes_open for p in active.values()),
        }
    )


def _missing(pool: PoolSnapshot) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for one in pool.wanted:
        key = (one.task_set, one.task_id, one.code_hash)
        found[key] = found.get(key, 0) + one.missing
    return found


def _task_ids(active: Mapping[str, PoolSnapshot]) -> list[str]:
    return list(dict.fromkeys(t for p in active.values() for t in p.task_ids))


def _alone(lead: GroupPool, active: Mapping[str, PoolSnapshot], trained: frozenset[str]) -> Demand:
    """Serve the first server; the others could only be served by tasks that it does not take."""
    server, pool = next(iter(active.items()))
    # Tasks are chosen by the lead's step whoever is served, so that the order of tasks stays one order.
    by_lead = {"step": lead.step, "plan_steps": lead.plan_steps}
    guests = trained | (set(active) - {server})
    return Demand(GroupPool.model_validate({**dict(pool), **by_lead}), guests, {server: pool.step})
