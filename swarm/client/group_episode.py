"""One episode of a swarm group, as an agent sees it: a way to each role, one finish for all servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from swarm.client import group_end
from swarm.client.access import AgentKey, AsyncAccess, AsyncAgentKey, SyncAccess
from swarm.client.base import ABORT_DEADLINE_S
from swarm.client.episode import finish_request
from swarm.client.errors import ClientUsageError, ExternalModelDown
from swarm.client.external import Book, Usage, is_outage
from swarm.client.external_routes import AsyncExternalRoute, ExternalRoute
from swarm.protocol.episodes import CallTokens, FinishRequest
from swarm.protocol.errors import RewardError, ServerUnreachable
from swarm.protocol.states import EpisodeKind

if TYPE_CHECKING:
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.group import SwarmGroup
    from swarm.client.group_roles import Cast, GroupGrant, GroupOutcome

RouteT = TypeVar("RouteT")

AsyncRoute = AsyncAccess | AsyncExternalRoute
Route = SyncAccess | ExternalRoute


@dataclass(frozen=True, slots=True)
class Result:
    """How an agent says that an episode ended."""

    reward: float | None = None
    """Of every role that ``rewards`` does not name."""
    metrics: Mapping[str, float] | None = None
    rewards: Mapping[str, float] | None = None
    """By role."""
    tokens: Mapping[str, Sequence[CallTokens | Mapping[str, Any]]] | None = None
    """By server: own advantages, weights and masks, as ``Episode.finish`` takes them."""
    code_hash: str = ""


class GroupEpisodeBase(Generic[RouteT]):
    """What is known without asking a server. The routes have no finish of their own: a group ends on all servers or on none."""

    def __init__(
        self, grant: GroupGrant, cast: Cast, book: Book, routes: Mapping[str, RouteT]
    ) -> None:
        """Keep the grant; ``outcome`` stays None until the episode was finished or aborted through this object."""
        self.grant = grant
        self.outcome: GroupOutcome | None = None
        self._cast, self._book, self._routes = cast, book, dict(routes)
        lead = next(iter(grant.members.values()))
        self.task_id, self.task_set = grant.task_id or lead.request.task_id, lead.request.task_set
        trains = any(m.trains for m in grant.members.values())
        self.kind = EpisodeKind.TRAIN if trains else EpisodeKind.EVAL

    @property
    def id(self) -> str:
        """The lead server's id of the episode."""
        return self.grant.episode_id

    @property
    def ids(self) -> dict[str, str]:
        """Server -> its id of the episode."""
        return {server: m.grant.episode_id for server, m in self.grant.members.items()}

    @property
    def step(self) -> int:
        """The lead server's step at the grant."""
        return self.grant.step

    @property
    def training(self) -> list[str]:
        """Servers that train this episode; the others play along."""
        return [server for server, m in self.grant.members.items() if m.trains]

    @property
    def server_roles(self) -> list[str]:
        """The roles that servers play, in the order given; external models are left out."""
        return list(self._cast.roles)

    @property
    def usage(self) -> dict[str, Usage]:
        """What external models have used so far, by role."""
        return self._book.by_role()

    def role(self, name: str) -> RouteT:
        """The way to a role: ``chat``, ``openai`` (or ``async_openai``), ``environ``, ``base_url``, ``api_key``.

        Raises:
            ClientUsageError: there is no such role.
        """
        if name not in self._routes:
            raise ClientUsageError(
                f"This group has no role {name!r}.",
                hint=f"Its roles are {', '.join(map(repr, sorted(self._routes)))}.",
            )
        return self._routes[name]

    def excuses(self, error: BaseException) -> bool:
        """Whether ``error`` comes of a server or an external model that was away, so that it is not the agent's failure."""
        urls = {r: m.base_url for r, m in self._cast.externals.items()}
        urls |= {s: m.grant.base_url for s, m in self.grant.members.items()}
        return isinstance(error, ServerUnreachable) or is_outage(error, urls)

    def _down(self) -> ExternalModelDown | None:
        """The outage that this episode cannot finish with; None = there was none, or the model is optional."""
        for role, why in self._book.down().items():
            if not self._cast.externals[role].optional:
                return ExternalModelDown(
                    f"The episode cannot be finished, because its external model {role!r} was down: {why}",
                    hint="It is aborted on all servers. With ExternalModel(optional=True) an agent may do without.",
                    role=role,
                )
        return None

    def _requests(self, result: Result) -> dict[str, FinishRequest]:
        """What each server is told.

        Raises:
            ClientUsageError: a reward for a role that no server plays, or tokens for no server.
            RewardError: a server that trains has no reward.
        """
        rewards = dict(result.rewards or {})
        unknown = sorted(set(rewards) - set(self._cast.roles))
        unknown += sorted(set(result.tokens or {}) - set(self._cast.servers))
        if unknown:
            raise ClientUsageError(
                f"A finish names {unknown[0]!r}, which is no role with a server (in rewards) or no server (in tokens).",
                hint=f"Roles: {', '.join(sorted(self._cast.roles))}. Servers: {', '.join(self._cast.servers)}.",
            )
        metrics = {**(result.metrics or {}), **self._book.total().metrics()}
        return {s: self._request(s, result, rewards, metrics) for s in self.grant.members}

    def _request(
        self, server: str, result: Result, rewards: dict[str, float], metrics: dict[str, float]
    ) -> FinishRequest:
        agents = self._cast.agents(server)
        own = {role: rewards[role] for role in agents if role in rewards}
        reward = result.reward if agents else rewards.get(self._cast.role_of(server), result.reward)
        if reward is None and not own and self.grant.members[server].trains:
            raise RewardError(
                f"Server {server!r} trains this episode and was told no reward.",
                hint="Give reward=, or rewards={role: ...} for each role that trains.",
            )
        return finish_request(
            reward,
            metrics,
            rewards=own,
            tokens=(result.tokens or {}).get(server, ()),
            code_hash=result.code_hash,
        )

    def __repr__(self) -> str:
        """The episode without its keys."""
        return (
            f"<{type(self).__name__} {self.ids} {self.kind.value} {self.task_set}/{self.task_id}>"
        )


class AsyncGroupEpisode(GroupEpisodeBase[AsyncRoute]):
    """An episode of an ``AsyncSwarmGroup``."""

    def __init__(self, grant: GroupGrant, group: AsyncSwarmGroup, book: Book) -> None:
        """Made by ``AsyncSwarmGroup.episode``."""
        routes: dict[str, AsyncRoute] = {}
        for name, role in group.cast.roles.items():
            member, client = grant.members[role.server], group.servers[role.server]
            key = member.keys.get(name)
            if key is None:
                own = client.access_parts(member.grant.api_key, member.grant.base_url)
                routes[name] = AsyncAccess(*own)
            else:
                access = client.access_parts(key.api_key, key.base_url)
                routes[name] = AsyncAgentKey(key.episode_id, name, train=key.train, access=access)
        routes |= {name: server.route(book) for name, server in group.outside.items()}
        super().__init__(grant, group.cast, book, routes)
        self._group = group

    async def finish(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> GroupOutcome:
        """End the episode on all servers or on none: prepare on each, then commit. Idempotent.

        Args:
            reward: of every role that ``rewards`` does not name.
            metrics: finite numbers by name; what external models cost is added (``external_cost_usd``, ...).
            more: fields of ``Result``: ``rewards`` by role, ``tokens`` by server, ``code_hash``.

        Raises:
            RewardError: a number is not finite, or a server that trains has no reward; the episode stays open.
            ExternalModelDown: an external model was down; the episode was aborted.
        """
        if self.outcome is not None:
            return self.outcome
        down = self._down()
        if down is not None:
            await self.abort(down.message)
            raise down
        requests = self._requests(Result(reward, metrics, **more))
        self.outcome = await self._group.drive(group_end.finish(self.grant, requests))
        return self.outcome

    async def abort(
        self, reason: str = "", *, deadline_s: float = ABORT_DEADLINE_S
    ) -> GroupOutcome:
        """End the episode on all servers without a result. Idempotent."""
        if self.outcome is None:
            self.outcome = await self._group.drive(group_end.abort(self.grant, reason, deadline_s))
        return self.outcome


class GroupEpisode(GroupEpisodeBase[Route]):
    """An episode of a ``SwarmGroup``; may be used from any thread."""

    def __init__(self, grant: GroupGrant, group: SwarmGroup, book: Book) -> None:
        """Made by ``SwarmGroup.episode``."""
        routes: dict[str, Route] = {}
        for name, role in group.cast.roles.items():
            member, client = grant.members[role.server], group.servers[role.server]
            key = member.keys.get(name)
            if key is None:
                own = client.access_parts(member.grant.api_key, member.grant.base_url)
                routes[name] = SyncAccess(*own)
            else:
                access = client.access_parts(key.api_key, key.base_url)
                routes[name] = AgentKey(key.episode_id, name, train=key.train, access=access)
        routes |= {name: server.route(book) for name, server in group.outside.items()}
        super().__init__(grant, group.cast, book, routes)
        self._group = group

    def finish(
        self, reward: float | None = None, metrics: Mapping[str, float] | None = None, **more: Any
    ) -> GroupOutcome:
        """End the episode on all servers or on none; as ``AsyncGroupEpisode.finish``."""
        if self.outcome is not None:
            return self.outcome
        down = self._down()
        if down is not None:
            self.abort(down.message)
            raise down
        requests = self._requests(Result(reward, metrics, **more))
        self.outcome = self._group.drive(group_end.finish(self.grant, requests))
        return self.outcome

    def abort(self, reason: str = "", *, deadline_s: float = ABORT_DEADLINE_S) -> GroupOutcome:
        """End the episode on all servers without a result. Idempotent."""
        if self.outcome is None:
            self.outcome = self._group.drive(group_end.abort(self.grant, reason, deadline_s))
        return self.outcome
