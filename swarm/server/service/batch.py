"""From the chosen groups of a step to the rows that the engine trains on: advantages, merging, weights, fates.

Pure: reads episodes, returns a plan. Advantages come from each group once per episode, never per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import CallRecord
from swarm.protocol.states import FateReason
from swarm.server.journal.records import GroupStats
from swarm.server.ports import TrainRow
from swarm.server.service.metrics import Consumed
from swarm.server.tracking.account import Fate, masked, whole_episode
from swarm.server.tracking.advantages import group_advantages
from swarm.server.tracking.merge import MergedRow, TokenBytes, build_rows


class Member(Protocol):
    """What is needed of a finished episode; those in memory and those of the journal both have it."""

    episode_id: str
    task_set: str
    task_id: str
    group_id: str
    repeat_index: int
    reward: float | None

    @property
    def calls(self) -> list[CallRecord]:
        """Captured calls in order."""
        ...


@dataclass(slots=True)
class StepPlan:
    """Everything that is decided before the engine moves."""

    rows: list[TrainRow]
    groups: list[GroupStats]
    fates: dict[str, list[Fate]]
    """Episode id -> fate of each call."""
    consumed: Consumed


@dataclass(slots=True)
class _Draft:
    rows: list[TrainRow] = field(default_factory=list[TrainRow])
    groups: list[GroupStats] = field(default_factory=list[GroupStats])
    fates: dict[str, list[Fate]] = field(default_factory=dict[str, list[Fate]])


def plan_step(
    config: TrainConfig,
    groups: Sequence[tuple[str, Sequence[Member]]],
    token_bytes: TokenBytes | None = None,
) -> StepPlan:
    """Plan a step from its groups, each ``(group_id, members)``. No groups, or none with unequal rewards: no rows."""
    draft = _Draft()
    zero = 0
    for group_id, members in groups:
        rewards = [member.reward or 0.0 for member in members]
        advantages = group_advantages(config.algorithm.name, rewards)
        draft.groups.append(_stats(group_id, members, rewards, advantages, config.batch.repeat))
        zero += len(members) if not any(advantages) else 0
        for member, advantage in zip(members, advantages, strict=True):
            if any(advantages):
                _add_rows(draft, member, advantage, config, token_bytes)
            else:
                fate = masked(FateReason.ZERO_ADVANTAGE)
                draft.fates[member.episode_id] = whole_episode(member.calls, fate)
    draft.rows.sort(key=lambda row: row.key)
    _weigh(draft.rows, config)
    every = [member for _, members in groups for member in members]
    consumed = Consumed(
        groups=len(groups),
        rewards=[member.reward or 0.0 for member in every],
        zero_advantage=zero,
        calls=[member.calls for member in every],
        rows=len(draft.rows),
    )
    return StepPlan(draft.rows, draft.groups, draft.fates, consumed)


def _stats(
    group_id: str,
    members: Sequence[Member],
    rewards: list[float],
    advantages: list[float],
    size: int,
) -> GroupStats:
    return GroupStats(
        group_id=group_id,
        task_set=members[0].task_set,
        task_id=members[0].task_id,
        episode_ids=[member.episode_id for member in members],
        rewards=rewards,
        advantages=advantages,
        missing=size - len(members),
    )


def _add_rows(
    draft: _Draft,
    member: Member,
    advantage: float,
    config: TrainConfig,
    token_bytes: TokenBytes | None,
) -> None:
    merged = build_rows(member.calls, config.match, token_bytes=token_bytes)
    draft.fates[member.episode_id] = merged.fates
    for i, row in enumerate(merged.rows):
        draft.rows.append(_row(member, i, row, advantage))


def _row(member: Member, index: int, row: MergedRow, advantage: float) -> TrainRow:
    return TrainRow(
        key=f"{member.group_id}/{member.repeat_index:04d}/{index:04d}",
        episode_id=member.episode_id,
        ids=row.ids,
        spans=row.spans,
        logprobs=row.logprobs,
        advantage=advantage,
        weight=0.0,
    )


def _weigh(rows: list[TrainRow], config: TrainConfig) -> None:
    """Set each row's token weight: the loss is a sum over tokens, so the normaliser is in the weights.

    ``token_mean``: 1 / trained tokens of the batch. ``episode_mean``: 1 / (episodes with rows x trained tokens of the episode).
    """
    tokens: dict[str, int] = {}
    for row in rows:
        tokens[row.episode_id] = tokens.get(row.episode_id, 0) + len(row.logprobs)
    total = sum(tokens.values())
    per_episode = config.algorithm.loss_aggregation == "episode_mean"
    for row in rows:
        row.weight = 1.0 / (len(tokens) * tokens[row.episode_id]) if per_episode else 1.0 / total
