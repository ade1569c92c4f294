"""From the chosen groups of a step to the rows that the engine trains on: advantages, merging, weights, fates.

Pure: reads episodes, returns a plan. Advantages come from each group once per episode and agent, never per row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from swarm.protocol.config import TrainConfig
from swarm.protocol.records import CallRecord
from swarm.protocol.states import CollectionPolicy, FateReason
from swarm.server.journal.records import AgentStats, CallVerdict, GroupStats, TokenChoices
from swarm.server.ports import TrainRow
from swarm.server.service.metrics import Consumed
from swarm.server.service.replays import replays_of
from swarm.server.service.returns import Graded, agent_returns, fates_in_group, reward_of
from swarm.server.tracking.account import TRAINED, Fate, masked
from swarm.server.tracking.merge import MergedRow, TokenBytes, build_rows


class Pictures(NamedTuple):
    """What is needed of pictures to make rows."""

    token: int
    """Stands for a picture in ids."""
    read: Callable[[Iterable[str]], Mapping[str, bytes]]
    """Digest -> encoded picture, of all that are asked for."""


NO_CHOICE = TokenChoices(call_index=-1)
T = TypeVar("T")


class Member(Graded, Protocol):
    """What is needed of a finished episode; those in memory and those of the journal both have it."""

    task_set: str
    task_id: str
    group_id: str
    repeat_index: int
    client_id: str


@dataclass(slots=True)
class StepPlan:
    """Everything that is decided before the engine moves."""

    rows: list[TrainRow]
    groups: list[GroupStats]
    fates: dict[str, list[Fate]]
    """Episode id -> fate of each call."""
    advantages: dict[str, list[list[float]]]
    """Episode id -> for each call one advantage a sampled token; empty where it does not train."""
    consumed: Consumed

    def verdicts(self) -> dict[str, list[CallVerdict]]:
        """Return the same for the journal, which reads it when a trace is asked for."""
        return {
            episode_id: [
                _verdict(fate, values)
                for fate, values in zip(fates, self.advantages[episode_id], strict=True)
            ]
            for episode_id, fates in self.fates.items()
        }


@dataclass(slots=True)
class _Draft:
    config: TrainConfig
    token_bytes: TokenBytes | None
    image_token: int | None
    pictured: list[tuple[TrainRow, list[str]]] = field(
        default_factory=list[tuple[TrainRow, list[str]]]
    )
    """Rows with pictures, and the digests of these."""
    rows: list[TrainRow] = field(default_factory=list[TrainRow])
    groups: list[GroupStats] = field(default_factory=list[GroupStats])
    fates: dict[str, list[Fate]] = field(default_factory=dict[str, list[Fate]])
    advantages: dict[str, list[list[float]]] = field(default_factory=dict[str, list[list[float]]])
    zero: int = 0


def plan_step(
    config: TrainConfig,
    groups: Sequence[tuple[str, Sequence[Member]]],
    token_bytes: TokenBytes | None = None,
    pictures: Pictures | None = None,
) -> StepPlan:
    """Plan a step from its groups, each ``(group_id, members)``. No groups, or none that can train: no rows.

    ``pictures`` None: the model reads text only.
    """
    draft = _Draft(config, token_bytes, None if pictures is None else pictures.token)
    for group_id, members in groups:
        _plan_group(draft, group_id, members)
    if pictures is not None and draft.pictured:
        data = pictures.read({name for _, names in draft.pictured for name in names})
        for row, names in draft.pictured:
            row.images = [data[name] for name in names]
    draft.rows.sort(key=lambda row: row.key)
    _weigh(draft.rows, config)
    consumed = _consumed(config, groups, draft)
    return StepPlan(draft.rows, draft.groups, draft.fates, draft.advantages, consumed)


def _plan_group(draft: _Draft, group_id: str, members: Sequence[Member]) -> None:
    algorithm = draft.config.algorithm.name
    returns = agent_returns(members)
    advantages = {agent: one.advantages(algorithm) for agent, one in returns.items()}
    stats = {
        agent: AgentStats(
            episode_ids=one.episode_ids,
            rewards=one.rewards,
            advantages=list(advantages[agent].values()),
        )
        for agent, one in returns.items()
    }
    draft.groups.append(_stats(group_id, members, stats, draft.config.batch.repeat))
    moving = {agent: values for agent, values in advantages.items() if any(values.values())}
    for member in members:
        own = {agent: values.get(member.episode_id, 0.0) for agent, values in moving.items()}
        draft.zero += not any(member.episode_id in values for values in moving.values())
        _plan_member(draft, member, own)


def _stats(
    group_id: str, members: Sequence[Member], agents: dict[str, AgentStats], size: int
) -> GroupStats:
    own = agents.get("", AgentStats(episode_ids=[], rewards=[], advantages=[]))
    advantage = dict(zip(own.episode_ids, own.advantages, strict=True))
    return GroupStats(
        group_id=group_id,
        task_set=members[0].task_set,
        task_id=members[0].task_id,
        episode_ids=[member.episode_id for member in members],
        rewards=[member.reward for member in members],
        advantages=[advantage.get(member.episode_id, 0.0) for member in members],
        missing=size - len(members),
        agents=agents if set(agents) - {""} else {},
        code_hash=members[0].details.code_hash,
    )


def _plan_member(draft: _Draft, member: Member, advantage: Mapping[str, float]) -> None:
    """Add the rows of one episode; ``advantage``: of each agent whose rewards differ in this group."""
    choices = {choice.call_index: choice for choice in member.details.tokens}
    calls = member.calls
    fates = [
        masked(FateReason.ZERO_ADVANTAGE)
        if fate == TRAINED
        and call.agent not in advantage
        and not choices.get(call.index, NO_CHOICE).advantages
        else fate
        for call, fate in zip(calls, fates_in_group(member), strict=True)
    ]
    draft.fates[member.episode_id] = fates
    draft.advantages[member.episode_id] = [
        _advantages(call, choices, advantage.get(call.agent, 0.0)) if fate == TRAINED else []
        for call, fate in zip(calls, fates, strict=True)
    ]
    if TRAINED not in fates:
        return
    config = draft.config
    merged = build_rows(
        calls,
        config.match,
        token_bytes=draft.token_bytes,
        fates=fates,
        image_token=draft.image_token,
    )
    for i, row in enumerate(merged.rows):
        made = _row(member, i, row, advantage, choices)
        if config.asynchronous.enabled:
            made.versions = _gather(row, [_versions(call) for call in calls])
        if row.pictures:
            draft.pictured.append((made, row.pictures))
        draft.rows.append(made)


def _row(
    member: Member,
    index: int,
    row: MergedRow,
    advantage: Mapping[str, float],
    choices: Mapping[int, TokenChoices],
) -> TrainRow:
    calls = member.calls
    agent = calls[row.call_indices[0]].agent  # a row is of one agent
    own = advantage.get(agent, 0.0)
    told = [choices.get(i, NO_CHOICE) for i in row.call_indices]
    made = TrainRow(
        key=f"{member.group_id}/{member.repeat_index:04d}/{index:04d}",
        episode_id=member.episode_id,
        ids=row.ids,
        spans=row.spans,
        logprobs=row.logprobs,
        advantage=own,
        weight=0.0,
        agent=agent,
        reward=reward_of(member, agent) or 0.0,
    )
    made.replays = replays_of(row, calls)
    if any(choice.advantages for choice in told):
        made.advantages = _gather(row, [_advantages(call, choices, own) for call in calls])
    if any(choice.weights for choice in told):
        made.weights = _gather(
            row,
            [
                choices.get(call.index, NO_CHOICE).weights or [1.0] * len(call.sampled_ids)
                for call in calls
            ],
        )
    return made


def _gather(row: MergedRow, of_calls: Sequence[Sequence[T]]) -> list[T]:
    """Return the values of the row's trained tokens from those of each call's sampled tokens."""
    found: list[T] = []
    for span, index, start in zip(row.spans, row.call_indices, row.starts, strict=True):
        found += of_calls[index][start : start + span.end - span.start]
    return found


def _advantages(
    call: CallRecord, choices: Mapping[int, TokenChoices], advantage: float
) -> list[float]:
    chosen = choices.get(call.index, NO_CHOICE).advantages
    return list(chosen) or [advantage] * len(call.sampled_ids)


def _versions(call: CallRecord) -> list[int]:
    return call.token_versions or [call.policy_version] * len(call.sampled_ids)


def _verdict(fate: Fate, advantages: list[float]) -> CallVerdict:
    alike = len(set(advantages)) == 1
    return CallVerdict(
        fate=fate.fate.value,
        reason=fate.reason.value,
        advantage=advantages[0] if alike else None,
        advantages=[] if alike else advantages,
    )


def _consumed(
    config: TrainConfig, groups: Sequence[tuple[str, Sequence[Member]]], draft: _Draft
) -> Consumed:
    every = [member for _, members in groups for member in members]
    by_episode = config.batch.policy is CollectionPolicy.C1
    sets = [m.task_set for m in every] if by_episode else [m[0].task_set for _, m in groups]
    rewards: dict[str, list[float]] = {}
    for member in every:
        # Also those that do not train, and those that were told a reward without having acted.
        for agent in {call.agent for call in member.calls} | set(member.details.rewards):
            value = reward_of(member, agent)
            if value is not None:
                rewards.setdefault(agent, []).append(value)
    return Consumed(
        groups=len(groups),
        rewards=[member.reward for member in every if member.reward is not None],
        zero_advantage=draft.zero,
        calls=[member.calls for member in every],
        rows=len(draft.rows),
        task_sets=dict(sorted(Counter(sets).items())),
        clients=dict(sorted(Counter(member.client_id for member in every).items())),
        agents=dict(sorted(rewards.items())) if set(rewards) - {""} else {},
        sizes=[len(members) for _, members in groups],
    )


def _weigh(rows: list[TrainRow], config: TrainConfig) -> None:
    """Set each row's token weight: the loss is a sum over tokens, so the normaliser is in the weights.

    ``token_mean``: 1 / trained tokens of the batch. ``episode_mean``: 1 / (episodes with rows x trained tokens of the episode).
    Trained tokens are counted, whatever weight a client gave them.
    """
    tokens: dict[str, int] = {}
    for row in rows:
        tokens[row.episode_id] = tokens.get(row.episode_id, 0) + len(row.logprobs)
    total = sum(tokens.values())
    per_episode = config.algorithm.loss_aggregation == "episode_mean"
    for row in rows:
        row.weight = 1.0 / (len(tokens) * tokens[row.episode_id]) if per_episode else 1.0 / total
