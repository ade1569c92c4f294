"""How far the open step is on its way to the next update: a number and the same in words, under each policy."""

from __future__ import annotations

import math
from typing import NamedTuple

from swarm.protocol.states import CollectionPolicy, EngineState
from swarm.server.service import policies
from swarm.server.service.groups import Pool
from swarm.server.service.lots import Lot


class Progress(NamedTuple):
    """``share`` is 0..1; it only falls when the step loses something (a group, a lease)."""

    share: float
    text: str


class Votes(NamedTuple):
    """Agreements of the open step (C4, C5)."""

    agreed: int
    trainers: int
    """Those with a live lease, and those that agreed and left."""


def progress(pool: Pool, state: EngineState, votes: Votes) -> Progress:
    """Return the progress towards the next update; states other than ROLLING speak for themselves."""
    if state in (EngineState.OFFLINE, EngineState.BOOTING):
        return Progress(0.0, f"none: the engine is {state.value}")
    if state is EngineState.TRAINED:
        return Progress(1.0, "training is complete")
    if state is EngineState.ROLLING_POST:
        return Progress(1.0, "the batch is complete; open train episodes may end")
    if state is not EngineState.ROLLING:
        return Progress(1.0, "the batch is complete; the weights move")
    if pool.batch.policy in policies.BY_AGREEMENT:
        return _by_votes(pool, votes)
    need = sum(lot.need for lot in pool.lots.values())
    done = math.fsum(min(_done(pool, name, lot), lot.need) for name, lot in pool.lots.items())
    return Progress(_share(done, need), policies.in_words(pool))


def _done(pool: Pool, name: str, lot: Lot) -> float:
    """Return what a lot has in the unit of its need.

    Under C2 the finished members of the fullest groups count, so that the number moves between completions; under C3 only
    what is certain does: a group that is not complete may still turn out equal.
    """
    if pool.batch.policy is CollectionPolicy.C1:
        return lot.finished
    if pool.batch.policy is CollectionPolicy.C3:
        return lot.trainable
    mine = (g for g in pool.alive() if not pool.shares or g.task_set == name)
    filled = ((g.size - g.forgone, len(g.finished)) for g in mine)
    parts = sorted((done / size for size, done in filled if size), reverse=True)
    return math.fsum(parts[: lot.need])


def _by_votes(pool: Pool, votes: Votes) -> Progress:
    every = pool.batch.policy is CollectionPolicy.C4
    needed = votes.trainers if every else 1
    who = f"{votes.agreed} of {votes.trainers} trainers agree"
    unit = "each of them must" if every else "one of them must"
    text = f"{who} ({unit}); {len(pool.completed)} groups complete"
    return Progress(_share(votes.agreed, needed) if needed else 0.0, text)


def _share(part: float, whole: int) -> float:
    return min(1.0, part / whole) if whole else 1.0
