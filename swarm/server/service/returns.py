"""What the members of a group came to, agent by agent: rewards, advantages, and whether anything of it can train.

Pure. An agent's statistics are over the members in which it made a call and has a reward; a reward that was not told is
missing, never 0. An episode without any call counts for the episode's own key (agent ``""``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swarm.protocol.records import CallRecord
from swarm.server.journal.records import EpisodeDetails
from swarm.server.tracking.account import TRAINED, Fate, own_fates
from swarm.server.tracking.advantages import group_advantages


class Graded(Protocol):
    """What is needed of a finished episode here."""

    episode_id: str
    reward: float | None
    details: EpisodeDetails

    @property
    def calls(self) -> list[CallRecord]:
        """Captured calls in order."""
        ...


@dataclass(slots=True)
class AgentReturns:
    """One agent in one group; the lists are in the order of the members."""

    episode_ids: list[str] = field(default_factory=list[str])
    rewards: list[float] = field(default_factory=list[float])

    @property
    def unequal(self) -> bool:
        """Whether its rewards differ, so that advantages are not all zero."""
        return bool(self.rewards) and min(self.rewards) != max(self.rewards)

    def advantages(self, algorithm: str) -> dict[str, float]:
        """Return episode id -> advantage of this agent."""
        values = group_advantages(algorithm, self.rewards)
        return dict(zip(self.episode_ids, values, strict=True))


def reward_of(member: Graded, agent: str) -> float | None:
    """Return an agent's reward in an episode: its own, else the episode's; None when neither was told."""
    return member.details.rewards.get(agent, member.reward)


def actors(member: Graded) -> list[str]:
    """Return the agents that made calls, sorted; ``[""]`` when there are no calls."""
    return sorted({call.agent for call in member.calls}) or [""]


def agent_returns(members: Sequence[Graded]) -> dict[str, AgentReturns]:
    """Return each agent that trains with its rewards in this group, by name."""
    found: dict[str, AgentReturns] = {}
    for member in members:
        for agent in actors(member):
            reward = reward_of(member, agent)
            if reward is not None and member.details.agents.get(agent, True):
                returns = found.setdefault(agent, AgentReturns())
                returns.episode_ids.append(member.episode_id)
                returns.rewards.append(reward)
    return dict(sorted(found.items()))


def trainable(members: Sequence[Graded]) -> bool:
    """Whether an update could learn from the group: some agent's rewards differ, or a client chose advantages of its own."""
    if any(returns.unequal for returns in agent_returns(members).values()):
        return True
    return any(_chosen(member) for member in members)


def fates_in_group(member: Graded) -> list[Fate]:
    """Return what each call is by itself and by its agent, before advantages are looked at."""
    return own_fates(member.calls, member.details.agents)


def _chosen(member: Graded) -> bool:
    choices = [choice for choice in member.details.tokens if any(choice.advantages)]
    if not choices:
        return False
    fates = fates_in_group(member)
    return any(fates[choice.call_index] == TRAINED for choice in choices)
