"""From a step's record to named numbers. The names are the contract of all loggers; ``docs/guides/monitoring.md`` lists them."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping

from swarm.protocol.records import StepMetrics

PREFIX = "swarm"
NUMBERS = (
    "policy_version", "groups", "episodes", "reward_mean", "reward_std", "zero_advantage_share",
    "turns_mean", "truncated_share", "response_tokens_mean", "loss", "grad_norm", "clip_fraction",
    "entropy", "logprob_gap_max", "rows", "calls", "divergences", "guarded",
    "context_overflows", "rollout_s", "drain_s", "update_s", "sampling_cpu_s", "update_cpu_s", "front_cpu_s", "lr", "kl", "staleness_mean", "staleness_max",
    "importance_clipped_share", "groups_tried", "eval_overlap",
)  # fmt: skip
"""Fields that are one number, ``swarm/<field>``; a missing one is left out, never 0."""
TABLES = {
    "tokens": "tokens",
    "episodes_dropped": "dropped",
    "task_sets": "task_sets",
    "guard": "guard",
    "agents": "reward_of",
}
"""Fields that are a number a name: ``swarm/<value>/<name>``."""
_ODD = re.compile(r"[^\w.\-]+", re.ASCII)
NAME_LIMIT = 80


def scalars(metrics: StepMetrics) -> dict[str, float]:
    """Return the step's numbers by name, all finite. Clients are only counted: their ids would be a series each."""
    found: dict[str, float] = {"step": metrics.step}
    for field in NUMBERS:
        found[field] = _number(getattr(metrics, field))
    for field, name in TABLES.items():
        table: Mapping[str, float] = getattr(metrics, field)
        found |= {f"{name}/{safe_name(key)}": float(value) for key, value in table.items()}
    found["updated"] = float(metrics.updated)
    found["rolled_back"] = float(bool(metrics.rolled_back))
    found["eval_round_missed"] = float(metrics.eval_round == "missed")
    found["contributing_clients"] = float(len(metrics.clients))
    return {f"{PREFIX}/{name}": v for name, v in found.items() if math.isfinite(v)}


def safe_name(name: str) -> str:
    """Return a name that every logger takes: letters, digits, ``_.-``; one that had to be changed keeps a checksum of itself."""
    plain = _ODD.sub("_", name.replace(":", "."))[:NAME_LIMIT]
    if plain == name.replace(":", "."):
        return plain
    return f"{plain}-{zlib.crc32(name.encode(errors='surrogatepass')):08x}"


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
