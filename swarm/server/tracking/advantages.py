"""Group-relative advantages: pure functions from the rewards of one group to one advantage an episode.

Common rule: a group of one, or of equal rewards, carries no preference and gets zeros under every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from swarm.protocol.errors import ConfigError

STD_EPS = 1e-6
"""Added to the standard deviation, so that a tiny spread does not blow up."""


def grpo(rewards: Sequence[float]) -> list[float]:
    """``A_i = (r_i - mean(r)) / (std(r) + 1e-6)``, population standard deviation (DeepSeekMath, arXiv:2402.03300, section 4.1.2)."""
    mean = _mean(rewards)
    std = math.sqrt(_mean([(r - mean) ** 2 for r in rewards]))
    return [(r - mean) / (std + STD_EPS) for r in rewards]


def grpo_no_std(rewards: Sequence[float]) -> list[float]:
    """``A_i = r_i - mean(r)`` (Dr. GRPO, arXiv:2503.20783, section 3.2: no division by the standard deviation)."""
    mean = _mean(rewards)
    return [r - mean for r in rewards]


def rloo(rewards: Sequence[float]) -> list[float]:
    """``A_i = r_i - 1/(N-1) sum_{j != i} r_j`` (REINFORCE leave-one-out, arXiv:2402.14740, section 3.2)."""
    total, n = math.fsum(rewards), len(rewards)
    return [r - (total - r) / (n - 1) for r in rewards]


def reinforce(rewards: Sequence[float]) -> list[float]:
    """``A_i = r_i``: the plain policy gradient without a baseline (Williams 1992)."""
    return [float(r) for r in rewards]


ALGORITHMS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "grpo": grpo,
    "grpo_no_std": grpo_no_std,
    "rloo": rloo,
    "reinforce": reinforce,
}


def group_advantages(name: str, rewards: Sequence[float]) -> list[float]:
    """Return one advantage an episode, in the order of ``rewards``; zeros for a group of one or of equal rewards.

    Raises:
        ConfigError: ``name`` is not one of ``ALGORITHMS``.
    """
    if name not in ALGORITHMS:
        raise ConfigError(
            f"algorithm.name {name!r} is unknown",
            hint=f"choose one of {', '.join(map(repr, ALGORITHMS))}",
        )
    if len(rewards) < 2 or max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    return ALGORITHMS[name](rewards)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
