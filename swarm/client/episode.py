"""One granted episode, as an agent sees it: chat, keys for its agents, hand over to an SDK or a program, finish or abort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from swarm.client import calls, group_calls
from swarm.client.access import AgentKey, AsyncAccess, AsyncAgentKey, SyncAccess
from swarm.protocol.episodes import (
    AbortRequest,
    CallTokens,
    FinishReply,
    FinishRequest,
    Grant,
    PrepareReply,
)
from swarm.protocol.states import EpisodeKind
from swarm.triggers import Point, hit

if TYPE_CHECKING:
    from swarm.client.openai_clients import OpenAIClients
    from swarm.client.transport_async import AsyncTransport
    from swarm.client.transport_sync import SyncTransport

COMMIT_DEADLINE_S = 30.0
"""How long a commit is tried when no promise says otherwise."""


class EpisodeBase:
    """What is known of an episode without asking the server."""

    grant: Grant
    task_id: str
    task_set: str
    kind: EpisodeKind
    outcome: FinishReply | None
    """None until the episode was finished, committed or aborted through this object."""
    promise: PrepareReply | None
    """Of the last ``prepare``; None = none was asked for."""

    def _know(self, grant: Grant, *, task_id: str, task_set: str, kind: EpisodeKind) -> None:
        self.grant = grant
        self.task_id, self.task_set, self.kind = task_id, task_set, kind
        self.outcome, self.promise = None, None

    @property
    def id(self) -> str:
        """The episode's id on the server."""
        return self.grant.episode_id

    @property
    def step(self) -> int:
        """Server step of the grant."""
        return self.grant.step

    def _commit_deadline_s(self) -> float:
        return self.promise.commit_within_s if self.promise else COMMIT_DEADLINE_S

    def __repr__(self) -> str:
        """The episode without its key."""
        return f"<{type(self).__name__} {self.id} {self.kind.value} {self.task_set}/{self.task_id} step {self.step}>"


class AsyncEpisode(EpisodeBase, AsyncAccess):
    """An episode of an ``AsyncSwarmClient``."""

    def __init__(
        self,
        grant: Grant,
        transport: AsyncTransport,
        sdks: OpenAIClients,
        *,
        chat_timeout_s: float,
        **facts: Any,
    ) -> None:
        """Made by ``AsyncSwarmClient.episode``."""
        AsyncAccess.__init__(self, grant.api_key, grant.base_url, chat_timeout_s, transport, sdks)
        self._know(grant, **facts)

    async def key(self, agent: str, *, train: bool = True) -> AsyncAgentKey:
        """A key for one agent of this episode: its calls, rewards, statistics and training are its own. Safe to repeat.

        Raises:
            StateError: the agent has a key that says otherwise whether it trains.
            EpisodeGone: the episode has ended.
        """
        found = await self._transport.send(group_calls.agent_key(self.id, agent, train=train))
        shared = (self._chat_timeout_s, self._transport, self._sdks)
        access = (found.api_key, found.base_url, *shared)
        return AsyncAgentKey(self.id, agent, train=found.train, access=access)

    async def finish(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> FinishReply:
        """End the episode with its reward (needed for train). Idempotent: the first finish wins.

        Args:
            reward: of every agent that ``rewards`` does not name.
            metrics: finite numbers by name.
            more: see ``finish_request``: ``rewards``, ``tokens``, ``code_hash``.

        Raises:
            RewardError: a number is not finite, an agent that trains has no reward, or ``tokens`` do not fit (``TokensError``).
        """
        call = calls.finish(self.id, finish_request(reward, metrics, **more))
        hit(Point.CLIENT_BEFORE_FINISH)
        self.outcome = await self._transport.send(call)
        hit(Point.CLIENT_AFTER_FINISH)
        return self.outcome

    async def prepare(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> PrepareReply:
        """Check a finish and have it promised: ``commit`` will be taken within ``commit_within_s``. Arguments and errors of ``finish``."""
        request = finish_request(reward, metrics, **more)
        self.promise = await self._transport.send(group_calls.prepare(self.id, request))
        hit(Point.CLIENT_PREPARED)
        return self.promise

    async def commit(self) -> FinishReply:
        """End the episode with what was prepared. Idempotent.

        Raises:
            StateError: it was not prepared.
        """
        call = group_calls.commit(self.id, self._commit_deadline_s())
        self.outcome = await self._transport.send(call)
        return self.outcome

    async def confirm(self) -> Grant:
        """Keep an episode that was granted as a reservation (``GrantRequest.reserve_s``); the first call does so too. Idempotent.

        Raises:
            EpisodeGone: the reservation has ended.
        """
        return await self._transport.send(group_calls.confirm(self.id))

    async def abort(self, reason: str = "", *, deadline_s: float | None = None) -> FinishReply:
        """End the episode without a result. Idempotent."""
        call = calls.abort(self.id, AbortRequest(reason=reason[:500]))
        hit(Point.CLIENT_BEFORE_ABORT)
        self.outcome = await self._transport.send(call.within(deadline_s) if deadline_s else call)
        return self.outcome


class Episode(EpisodeBase, SyncAccess):
    """An episode of a ``SwarmClient``; may be used from any thread."""

    def __init__(
        self,
        grant: Grant,
        transport: SyncTransport,
        sdks: OpenAIClients,
        *,
        chat_timeout_s: float,
        **facts: Any,
    ) -> None:
        """Made by ``SwarmClient.episode``."""
        SyncAccess.__init__(self, grant.api_key, grant.base_url, chat_timeout_s, transport, sdks)
        self._know(grant, **facts)

    def key(self, agent: str, *, train: bool = True) -> AgentKey:
        """A key for one agent of this episode; as ``AsyncEpisode.key``."""
        found = self._transport.send(group_calls.agent_key(self.id, agent, train=train))
        shared = (self._chat_timeout_s, self._transport, self._sdks)
        access = (found.api_key, found.base_url, *shared)
        return AgentKey(self.id, agent, train=found.train, access=access)

    def finish(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> FinishReply:
        """End the episode with its reward (needed for train); as ``AsyncEpisode.finish``."""
        call = calls.finish(self.id, finish_request(reward, metrics, **more))
        hit(Point.CLIENT_BEFORE_FINISH)
        self.outcome = self._transport.send(call)
        hit(Point.CLIENT_AFTER_FINISH)
        return self.outcome

    def prepare(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> PrepareReply:
        """Check a finish and have it promised; as ``AsyncEpisode.prepare``."""
        request = finish_request(reward, metrics, **more)
        self.promise = self._transport.send(group_calls.prepare(self.id, request))
        hit(Point.CLIENT_PREPARED)
        return self.promise

    def commit(self) -> FinishReply:
        """End the episode with what was prepared; as ``AsyncEpisode.commit``."""
        call = group_calls.commit(self.id, self._commit_deadline_s())
        self.outcome = self._transport.send(call)
        return self.outcome

    def confirm(self) -> Grant:
        """Keep an episode that was granted as a reservation; as ``AsyncEpisode.confirm``."""
        return self._transport.send(group_calls.confirm(self.id))

    def abort(self, reason: str = "", *, deadline_s: float | None = None) -> FinishReply:
        """End the episode without a result. Idempotent."""
        call = calls.abort(self.id, AbortRequest(reason=reason[:500]))
        hit(Point.CLIENT_BEFORE_ABORT)
        self.outcome = self._transport.send(call.within(deadline_s) if deadline_s else call)
        return self.outcome


def finish_request(
    reward: float | None,
    metrics: Mapping[str, float] | None,
    *,
    rewards: Mapping[str, float] | None = None,
    tokens: Sequence[CallTokens | Mapping[str, Any]] = (),
    code_hash: str = "",
) -> FinishRequest:
    """The body of a finish.

    Args:
        reward: of every agent that ``rewards`` does not name; None = only those that it names have one.
        metrics: finite numbers by name.
        rewards: by agent (``key``); ``""`` is who calls with the episode's own key.
        tokens: own advantages, weights and masks for calls (``CallTokens``, or mappings with its fields).
        code_hash: version of the code that played; the episode is refused when it was granted to another. Empty = as granted.
    """
    return FinishRequest(
        reward=reward,
        metrics=dict(metrics or {}),
        rewards=dict(rewards or {}),
        tokens=[CallTokens.model_validate(one) for one in tokens],
        code_hash=code_hash,
    )
