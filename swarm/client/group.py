"""``SwarmGroup``: the synchronous twin of ``AsyncSwarmGroup``; safe to use from many threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import group_life
from swarm.client.client import SwarmClient
from swarm.client.external import Book, ExternalModel
from swarm.client.external_routes import ExternalServer
from swarm.client.group_base import PAUSE_S, GroupBase
from swarm.client.group_episode import GroupEpisode
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


class SwarmGroup(GroupBase):
    """A group for scripts and threads. Close it (``with`` does), which closes its clients too."""

    def __init__(
        self,
        servers: Mapping[str, SwarmClient],
        *,
        roles: Mapping[str, GroupRole | str] | None = None,
        externals: Mapping[str, ExternalModel] | None = None,
        secrets: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Connect lazily; the arguments are those of ``AsyncSwarmGroup``."""
        super().__init__(servers, roles, externals, **options)
        self.servers = dict(servers)
        self.secrets = dict(secrets or {})
        keys = {n: (m, m.key(n, self.secrets)) for n, m in self.cast.externals.items()}
        self.outside = {n: ExternalServer(n, m, key) for n, (m, key) in keys.items()}
        self._threads = ThreadPoolExecutor(thread_name_prefix="swarm-group")

    def drive(self, move: Move[T]) -> T:
        """Run a program: send what it yields at the same time, tell it the answers."""
        try:
            batch = next(move)
            while True:
                batch = move.send(self._attempt_all(batch))
        except StopIteration as end:
            return end.value

    def _attempt_all(self, batch: Sequence[Send | Ask]) -> list[Any]:
        if len(batch) < 2:
            return [self._attempt(one) for one in batch]
        return list(self._threads.map(self._attempt, batch))

    def _attempt(self, one: Send | Ask) -> Any:
        client = self.servers[one.server]
        try:
            if isinstance(one, Send):
                return client.send(one.call)
            request = one.request
            client_id = client.ensure_registered(request.kind, request.code_hash or None)
            return client.grant(request.model_copy(update={"client_id": client_id}))
        except SwarmError as error:
            return error

    def configure(
        self, configs: Mapping[str, Config], *, dry_run: bool = False
    ) -> dict[str, list[ConfigChange]]:
        """Set one config a server, once all of them have said that they take it; see ``SwarmClient.configure``."""
        return self.drive(group_life.configure(self.cast.servers, configs, dry_run=dry_run))

    def start(self) -> dict[str, Status]:
        """Boot all engines; when one fails, those that this call started are stopped again."""
        return self.drive(group_life.start(self.cast.servers))

    def stop(self) -> dict[str, Status]:
        """Stop all engines; open episodes are aborted."""
        return self.drive(group_life.stop(self.cast.servers))

    def status(self) -> dict[str, Status]:
        """How each server is."""
        return self.drive(group_life.status(self.cast.servers))

    def metrics(self, after_step: int = 0) -> dict[str, list[StepMetrics]]:
        """Records of each server's completed steps greater than ``after_step``."""
        return self.drive(group_life.metrics(self.cast.servers, after_step))

    def agree(self, for_step: Mapping[str, int] | None = None) -> dict[str, AgreeReply]:
        """Agree on all servers (policies C4 and C5); ``for_step`` by server, None = the open step of each."""
        ids = {s: c.ensure_registered(EpisodeKind.TRAIN) for s, c in self.servers.items()}
        return self.drive(group_life.agree(ids, for_step))

    def grant(self, request: GrantRequest) -> GroupGrant:
        """Ask all servers once for an episode; the answer may be WAIT or TRAINING_COMPLETE."""
        return self.drive(self.taking(request))

    def episode_of(self, grant: Grant, request: GrantRequest) -> GroupEpisode:
        """The episode object of a group's grant that was GRANTED; the caller ends it."""
        del request  # each member knows its own
        assert isinstance(grant, GroupGrant)
        return GroupEpisode(grant, self, Book(self.book))

    @contextmanager
    def episode(
        self,
        task_id: str,
        *,
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        grant_timeout_s: float = 600.0,
        **more: Any,
    ) -> Generator[GroupEpisode]:
        """Take an episode of all servers; rules and errors are those of ``AsyncSwarmGroup.episode``."""
        request = self.request_for(task_id, EpisodeKind(kind), grant_timeout_s, **more)
        ends = time.monotonic() + grant_timeout_s
        while not self.is_granted(grant := self.grant(request), request):
            if time.monotonic() >= ends:
                raise self.timeout(grant, request, grant_timeout_s)
            time.sleep(PAUSE_S)
        episode = self.episode_of(grant, request)
        try:
            yield episode
        except BaseException as error:
            self._abort_quietly(episode, f"{type(error).__name__}: {error}")
            raise
        if episode.outcome is None and episode.kind is EpisodeKind.EVAL:
            episode.finish()
        elif episode.outcome is None:
            logger.warning("%r was left without finish(); it is aborted", episode)
            episode.abort("left without finish()")

    def _abort_quietly(self, episode: GroupEpisode, reason: str) -> None:
        """A failure to abort is logged, because the agent's own error matters more."""
        try:
            episode.abort(reason)
        except SwarmError as error:
            logger.warning("could not abort %r: %s", episode, error.message)

    def close(self) -> None:
        """Close the clients and the ways to external models. Safe to call twice."""
        for one in (*self.servers.values(), *self.outside.values()):
            one.close()
        self._threads.shutdown(wait=False)

    def __enter__(self) -> SwarmGroup:
        """Nothing is opened before the first call."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
