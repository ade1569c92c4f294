"""How a batch is cut into minibatches; every engine cuts alike. No torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from swarm.server.ports import TrainRow


def mass(rows: Sequence[TrainRow]) -> float:
    """Sum of the token weights, so that a minibatch is normalised like the whole batch; 1 when there is none."""
    return math.fsum(row.weight * len(row.logprobs) for row in rows) or 1.0


def minibatches(rows: Sequence[TrainRow], count: int) -> list[list[TrainRow]]:
    """Cut into at most ``count`` parts with about as many episodes each, in key order; an episode's rows stay together."""
    episodes: dict[str, list[TrainRow]] = {}
    for row in rows:
        episodes.setdefault(row.episode_id, []).append(row)
    members = list(episodes.values())
    count = min(count, len(members))
    edges = [len(members) * i // count for i in range(count + 1)]
    return [
        [row for member in members[low:high] for row in member]
        for low, high in itertools.pairwise(edges)
    ]
