"""``AsyncSwarmGroup``: several swarm servers and external models in one episode. Each server has its own model, algorithm and pace.

An episode is granted by all servers or by none, and finished on all or on none (prepare on each, then commit), so no model
trains on an episode that another refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import group_life
from swarm.client.async_client import AsyncSwarmClient
from swarm.client.external import Book, ExternalModel
from swarm.client.external_routes import AsyncExternalServer
from swarm.client.group_base import PAUSE_S, GroupBase
from swarm.client.group_episode import AsyncGroupEpisode
from swarm.client.group_life import Config
from swarm.client.group_moves import Ask, Move, Send
from swarm.client.group_roles import GroupGrant, GroupRole
from swarm.protocol.clients import AgreeReply
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import ConfigChange, Status
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EpisodeKind

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AsyncSwarmGroup(GroupBase):
    """A group for one event loop; close it (``async with`` does), which closes its clients too."""

    def __init__(
        self,
        servers: Mapping[str, AsyncSwarmClient],
        *,
        roles: Mapping[str, GroupRole | str] | None = None,
        externals: Mapping[str, ExternalModel] | None = None,
        secrets: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Connect lazily.

        Args:
            servers: name -> client. The first is the lead: ``run_episodes`` chooses tasks by its steps.
            roles: role -> server, or ``GroupRole(server, train=False)``; None = each server plays the role of its own name.
            externals: role -> model that somebody else serves.
            secrets: where the API keys of ``externals`` are looked up by name; a script passes ``os.environ``.
            options: ``reserve_s`` (how long a server keeps its part while the others are asked), ``when_trained`` (what a server
                does that reached its ``stop_at_step`` before the others: ``play`` along frozen, or ``stop`` the run) and
                ``outage_limit_s`` (how long ``run_episodes`` waits for an external model that is down).

        Raises:
            ClientUsageError: names that do not fit, or a secret that is not set.
        """
        super().__init__(servers, roles, externals, **options)
        self.servers = dict(servers)
        self.secrets = dict(secrets or {})
        keys = {n: (m, m.key(n, self.secrets)) for n, m in self.cast.externals.items()}
        self.outside = {n: AsyncExternalServer(n, m, key) for n, (m, key) in keys.items()}

    async def drive(self, move: Move[T]) -> T:
        """Run a program: send what it yields at the same time, tell it the answers."""
        try:
            batch = next(move)
            while True:
                answers = await asyncio.gather(*(self._attempt(one) for one in batch))
                batch = move.send(list(answers))
        except StopIteration as end:
            return end.value

    async def _attempt(self, one: Send | Ask) -> Any:
        client = self.servers[one.server]
        try:
            if isinstance(one, Send):
                return await client.send(one.call)
            request = one.request
            client_id = await client.ensure_registered(request.kind, request.code_hash or None)
            return await client.grant(request.model_copy(update={"client_id": client_id}))
        except SwarmError as error:
            return error

    async def configure(
        self, configs: Mapping[str, Config], *, dry_run: bool = False
    ) -> dict[str, list[ConfigChange]]:
        """Set one config a server, once all of them have said that they take it; see ``AsyncSwarmClient.configure``."""
        return await self.drive(group_life.configure(self.cast.servers, configs, dry_run=dry_run))

    async def start(self) -> dict[str, Status]:
        """Boot all engines; when one fails, those that this call started are stopped again."""
        return await self.drive(group_life.start(self.cast.servers))

    async def stop(self) -> dict[str, Status]:
        """Stop all engines; open episodes are aborted."""
        return await self.drive(group_life.stop(self.cast.servers))

    async def status(self) -> dict[str, Status]:
        """How each server is."""
        return await self.drive(group_life.status(self.cast.servers))

    async def metrics(self, after_step: int = 0) -> dict[str, list[StepMetrics]]:
        """Records of each server's completed steps greater than ``after_step``."""
        return await self.drive(group_life.metrics(self.cast.servers, after_step))

    async def agree(self, for_step: Mapping[str, int] | None = None) -> dict[str, AgreeReply]:
        """Agree on all servers (policies C4 and C5); ``for_step`` by server, None = the open step of each."""
        ids = {s: await c.ensure_registered(EpisodeKind.TRAIN) for s, c in self.servers.items()}
        return await self.drive(group_life.agree(ids, for_step))

    async def grant(self, request: GrantRequest) -> GroupGrant:
        """Ask all servers once for an episode; the answer may be WAIT or TRAINING_COMPLETE."""
        return await self.drive(self.taking(request))

    def episode_of(self, grant: Grant, request: GrantRequest) -> AsyncGroupEpisode:
        """The episode object of a group's grant that was GRANTED; the caller ends it."""
        del request  # each member knows its own
        assert isinstance(grant, GroupGrant)
        return AsyncGroupEpisode(grant, self, Book(self.book))

    @asynccontextmanager
    async def episode(
        self,
        task_id: str,
        *,
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        grant_timeout_s: float = 600.0,
        **more: Any,
    ) -> AsyncGenerator[AsyncGroupEpisode]:
        """Take an episode of all servers; an exception aborts it and goes on, so does leaving without a finish (eval: it is finished).

        Args:
            task_id: its task.
            kind: ``train`` or ``eval``.
            grant_timeout_s: how long to wait for all servers to grant it.
            more: ``task_set``, ``idle_deadline_s``.

        Raises:
            TrainingComplete: no server will grant a train episode any more.
            WaitTimeout: not within ``grant_timeout_s``.
        """
        request = self.request_for(task_id, EpisodeKind(kind), grant_timeout_s, **more)
        ends = time.monotonic() + grant_timeout_s
        while not self.is_granted(grant := await self.grant(request), request):
            if time.monotonic() >= ends:
                raise self.timeout(grant, request, grant_timeout_s)
            await asyncio.sleep(PAUSE_S)
        episode = self.episode_of(grant, request)
        try:
            yield episode
        except BaseException as error:
            await self._abort_quietly(episode, f"{type(error).__name__}: {error}")
            raise
        if episode.outcome is None and episode.kind is EpisodeKind.EVAL:
            await episode.finish()
        elif episode.outcome is None:
            logger.warning("%r was left without finish(); it is aborted", episode)
            await episode.abort("left without finish()")

    async def _abort_quietly(self, episode: AsyncGroupEpisode, reason: str) -> None:
        """A failure to abort is logged, because the agent's own error matters more."""
        try:
            await episode.abort(reason)
        except SwarmError as error:
            logger.warning("could not abort %r: %s", episode, error.message)

    async def close(self) -> None:
        """Close the clients and the ways to external models. Safe to call twice."""
        await asyncio.gather(*(c.close() for c in (*self.servers.values(), *self.outside.values())))

    async def __aenter__(self) -> AsyncSwarmGroup:
        """Nothing is opened before the first call."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()
