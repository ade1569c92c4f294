"""Truncated importance sampling for batches whose tokens older weights sampled (asynchronous mode). numpy only.

As in the embedded engine: the clipped loss compares with the policy as it is when the update begins, and each token's weight is
multiplied by ``min(exp(that policy - the sampler), cap)`` (Ionides 2008; decoupled PPO: Hilton et al. 2022).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from swarm.server.engine_verl.batches import Floats, RowArrays


def corrected(arrays: RowArrays, start_R_S: Floats, cap: float) -> tuple[RowArrays, int]:  # noqa: N803
    """Return the rows with ``start_R_S`` as their old log-probabilities and importance in their weights, and how many were cut.

    ``start_R_S`` has the log-probabilities of the weights that the update starts from; tokens that do not train are left alone.
    """
    trained = arrays.trained_R_S
    ratio = np.exp(np.where(trained, start_R_S - arrays.old_R_S, 0.0))
    cut = int((ratio > cap).sum())
    weight = (arrays.weight_R_S * np.minimum(ratio, cap)).astype(np.float32)
    old = np.where(trained, start_R_S, arrays.old_R_S).astype(np.float32)
    return replace(arrays, old_R_S=old, weight_R_S=weight), cut


def gap_of(arrays: RowArrays, start_R_S: Floats) -> float:  # noqa: N803
    """Return the largest difference between the sampler's log-probabilities and those of the weights of now; NaN stays NaN."""
    at = arrays.trained_R_S
    return float(np.abs(start_R_S[at] - arrays.old_R_S[at]).max()) if at.any() else 0.0
