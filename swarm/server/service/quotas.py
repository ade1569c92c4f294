"""Exact task mixes: which task sets a step takes its groups from, so that the shares hold over all steps together.

A mix is one endless sequence of task sets, and every step takes the next part of it. The sequence is that of Tijdeman's
chairman assignment (R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980): with n task sets of constant
shares, each set's count is never more than ``1 - 1/(2n - 2)`` away from its share of the length, at every length. What rounding
left open is carried from step to step as ``owed``. Pure functions; units are groups, under C1 episodes. Sums are kept in whole
billionths, so that they are exact, come back from the journal as they were, and ties stay ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from swarm.protocol.config import BatchConfig, MixStage
from swarm.protocol.states import CollectionPolicy
from swarm.server.service.lots import Lot

ONE = 10**9
"""One group (C1: episode), in the unit of the sums."""
OWED_LIMIT = ONE
"""What a set could not deliver is asked for again, one unit a step at most: a set that fails for good cannot take a step over."""


def shares_at(mix: Sequence[MixStage], step: int) -> dict[str, float]:
    """Return task set -> share (sum 1) in server step ``step``; empty without a mix."""
    stage = next((s for s in reversed(mix) if s.from_step <= step), None)
    if stage is None:
        return {}
    total = math.fsum(stage.shares.values())
    return {name: share / total for name, share in stage.shares.items()}


def sequence(shares: Mapping[str, float], owed: Mapping[str, float], count: int) -> list[str]:
    """Return the next ``count`` task sets of the sequence, given what each set is owed; empty without shares.

    Longer sequences begin with the shorter ones. Ties go to the set named first.
    """
    if not shares:
        return []
    weights = _whole(shares)
    due = {name: _sum(owed.get(name, 0.0)) for name in weights}
    slack = 2 * len(weights) - 2
    chosen: list[str] = []
    for _ in range(count):
        for name, weight in weights.items():
            due[name] += weight
        ripe = [name for name in weights if slack * due[name] >= ONE] if slack else list(weights)
        if ripe:  # of those the one that would first be too late
            name = min(ripe, key=lambda n: (slack * (ONE - due[n]) - ONE) / weights[n])
        else:  # only after steps that could not deliver
            name = max(weights, key=lambda n: due[n])
        due[name] -= ONE
        chosen.append(name)
    return chosen


def owed_after(
    shares: Mapping[str, float], owed: Mapping[str, float], taken: Mapping[str, int]
) -> dict[str, float]:
    """Return what each set is owed once a step has consumed ``taken`` (task set -> units); positive = it is behind its share.

    Sets that are not in the mix count for nothing. At most ``OWED_LIMIT`` is carried, so a share is exact as long as the steps
    can deliver it. A step that consumed nothing changes nothing.
    """
    weights = _whole(shares)
    total = sum(taken.get(name, 0) for name in weights)
    left = {
        name: _sum(owed.get(name, 0.0)) + weight * total - ONE * taken.get(name, 0)
        for name, weight in weights.items()
    }
    return _centred(weights, {n: max(-OWED_LIMIT, min(OWED_LIMIT, v)) for n, v in left.items()})


def carried(shares: Mapping[str, float], owed: Mapping[str, float]) -> dict[str, float]:
    """Return ``owed`` for these shares: sets that are not in the mix any more are forgotten, new ones begin at 0."""
    return _centred(_whole(shares), {name: _sum(owed.get(name, 0.0)) for name in shares})


def lots_of(batch: BatchConfig, step: int, owed: Mapping[str, float]) -> dict[str, Lot]:
    """Return the lots of a step by task set: what each must and may deliver. Without a mix: one lot named ``""`` for all."""
    episodes = batch.policy is CollectionPolicy.C1
    need = batch.tasks * batch.repeat if episodes else batch.tasks
    limit = max(need, math.ceil(need * batch.oversample - 1e-9))
    factor = max(batch.max_groups_factor, batch.oversample)
    shares = shares_at(batch.mix, step)
    if not shares:
        return {"": Lot(need, limit, tries=math.ceil(batch.tasks * factor))}
    order = sequence(shares, carried(shares, owed), limit)
    must, may = Counter(order[:need]), Counter(order)
    return {name: _lot(must[name], may[name], factor) for name in shares}


def _lot(need: int, limit: int, factor: float) -> Lot:
    return Lot(need, limit, tries=max(limit, math.ceil(need * factor)))


def _whole(shares: Mapping[str, float]) -> dict[str, int]:
    """Return the shares in billionths, at least one each, that add up to ``ONE``; the first set takes what rounding leaves."""
    weights = {name: max(1, round(share * ONE)) for name, share in shares.items()}
    for name in list(weights)[:1]:
        weights[name] += ONE - sum(weights.values())
    return weights


def _sum(value: float) -> int:
    return round(value * ONE)


def _centred(weights: Mapping[str, int], owed: Mapping[str, int]) -> dict[str, float]:
    """Spread what the sum is off by over the sets by their shares, so that it is 0; the first set takes what rounding leaves."""
    off = sum(owed.values())
    even = {name: owed[name] - weight * off // ONE for name, weight in weights.items()}
    for name in list(even)[:1]:
        even[name] -= sum(even.values())
    return {name: value / ONE for name, value in even.items()}
