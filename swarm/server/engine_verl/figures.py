"""What an update says of itself, from the log-probabilities that the workers return. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swarm.server.engine_verl.batches import Floats, RowArrays


@dataclass(frozen=True)
class Figures:
    """Sums over trained tokens; ``gap`` is the largest difference between what sampled and what trains, NaN stays NaN."""

    tokens: int
    clipped: float
    entropy: float
    kl: float
    gap: float


def figures_of(
    arrays: RowArrays,
    logprob_R_S: Floats,  # noqa: N803
    entropy_R_S: Floats | None,  # noqa: N803
    reference_R_S: Floats | None,  # noqa: N803
    *,
    low: float,
    high: float,
) -> Figures:
    """Return the figures of the embedded engine, computed alike; ``low`` and ``high`` are the clip's distances from 1."""
    at = arrays.trained_R_S
    new, old = logprob_R_S[at].astype(np.float64), arrays.old_R_S[at].astype(np.float64)
    advantage = arrays.advantage_R_S[at].astype(np.float64)
    ratio = np.exp(new - old)
    held = np.clip(ratio, 1 - low, 1 + high) * advantage
    kl = 0.0
    if reference_R_S is not None:
        distance = reference_R_S[at].astype(np.float64) - new
        kl = float((np.exp(distance) - 1 - distance).sum())
    return Figures(
        tokens=int(at.sum()),
        clipped=float((held < ratio * advantage).sum()),
        entropy=float(entropy_R_S[at].sum()) if entropy_R_S is not None else 0.0,
        kl=kl,
        gap=float(np.abs(new - old).max()) if len(new) else 0.0,
    )
