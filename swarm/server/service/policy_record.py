"""What a completed step's record says of its policy: the mix, who agreed, which seats stayed empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from swarm.protocol.states import CollectionPolicy
from swarm.server.journal.records import GroupStats
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.groups import Pool
from swarm.server.service.quotas import owed_after


def taken_of(policy: CollectionPolicy, groups: Sequence[GroupStats]) -> Counter[str]:
    """Return what a step consumed of each task set: groups, under C1 episodes."""
    taken: Counter[str] = Counter()
    for group in groups:
        taken[group.task_set] += len(group.episode_ids) if policy is CollectionPolicy.C1 else 1
    return taken


def policy_fields(
    core: Core, groups: Sequence[GroupStats], pool: Pool | None = None
) -> dict[str, Any]:
    """Return the fields of ``StepMetrics`` that the policy fills, for a step that consumed ``groups`` from ``pool`` (the open one)."""
    pool = pool or core.pool
    policy = pool.batch.policy
    owed = owed_after(pool.shares, pool.owed, taken_of(policy, groups))
    by_agreement = policy in policies.BY_AGREEMENT
    return {
        "mix_owed": owed,
        "agreed": core.consent.agreed() if by_agreement else [],
        "members_missing": 0
        if policy is CollectionPolicy.C1
        else sum(group.missing for group in groups),
    }
