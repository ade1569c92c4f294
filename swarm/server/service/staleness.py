"""How old the tokens of an episode are, in policy versions, and what asynchronous mode makes of it. Pure, but for ``holds_grants``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarm.protocol.records import CallRecord
from swarm.server.ports import TrainBatch
from swarm.server.service.core import Core


def oldest_version(calls: Sequence[CallRecord]) -> int | None:
    """Return the policy version of the oldest sampled token; None when nothing was sampled."""
    found = [min(c.token_versions, default=c.policy_version) for c in calls if c.sampled_ids]
    return min(found, default=None)


def is_stale(calls: Sequence[CallRecord], version: int, bound: int) -> bool:
    """Whether an update that starts from ``version`` may not use the calls any more; without tokens nothing is stale."""
    oldest = oldest_version(calls)
    return oldest is not None and version - oldest > bound


def staleness_fields(batch: TrainBatch, *, moved: bool) -> dict[str, Any]:
    """Return the fields of ``StepMetrics`` on staleness: over the tokens that ``batch`` trained, None when it did not move."""
    start = batch.policy_version - 1
    if not moved:
        return {}
    if not any(row.versions for row in batch.rows):
        return {"staleness_mean": 0.0, "staleness_max": 0}
    ages = [start - version for row in batch.rows for version in row.versions]
    return {"staleness_mean": sum(ages) / len(ages), "staleness_max": max(ages)}


def holds_grants(core: Core) -> str:
    """Return why no train episode can be granted while an update runs; empty when one can.

    The open step may be the one after the last. And with a bound of 0 whatever is sampled before the swap is lost.
    """
    if not core.ahead:
        return ""
    if core.step >= core.config.stop_at_step:
        return f"step {core.step} is the last, and its update runs"
    if core.config.asynchronous.max_staleness < 1:
        return f"the update of step {core.step} runs, and what is sampled before its end could not train (max_staleness 0)"
    return ""
