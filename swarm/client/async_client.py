"""``AsyncSwarmClient``: every control route, and episodes as async context managers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import calls
from swarm.client.calls import LONG_POLL_S, Call
from swarm.client.episode import AsyncEpisode
from swarm.client.leases import AsyncLeases, registered_id, role_for
from swarm.client.openai_clients import OpenAIClients
from swarm.client.settings import ClientSettings, new_client_id
from swarm.client.transport_async import AsyncTransport
from swarm.client.waiting import grant_timeout, granted, step_is_over, step_timeout
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import (
    CheckpointInfo,
    ClientLease,
    ClientRegistration,
    ConfigChange,
    EpisodeTrace,
    EvalRoundClose,
    Grant,
    GrantRequest,
    PoolSnapshot,
    Status,
    StepMetrics,
)
from swarm.protocol.states import EpisodeKind, Role

logger = logging.getLogger(__name__)

T = TypeVar("T")

ABORT_DEADLINE_S = 5.0
"""Aborting after a failure must not hide the failure behind a long wait."""


class AsyncSwarmClient:
    """A client of one swarm server; use it in one event loop, close it (``async with`` does)."""

    def __init__(
        self,
        url: str,
        token: str,
        client_id: str | None = None,
        *,
        timeout_s: float = 30.0,
        chat_timeout_s: float = 600.0,
    ) -> None:
        """Connect lazily to the server at ``url``.

        Args:
            url: ``http(s)://host:port``, as the ready record names it.
            token: an admin, client or eval token.
            client_id: stable id of this client; a later client with the same id replaces it and aborts its open episodes.
            timeout_s: deadline of a control call, retries included.
            chat_timeout_s: deadline of a chat call, held time included.
        """
        self.settings = ClientSettings(
            url,
            token,
            client_id or new_client_id(),
            timeout_s=timeout_s,
            chat_timeout_s=chat_timeout_s,
        )
        self._transport = AsyncTransport(self.settings)
        self._sdks = OpenAIClients(chat_timeout_s)
        self._leases = AsyncLeases(self._register_once, self.heartbeat)

    @property
    def client_id(self) -> str:
        """The id that this client registers."""
        return self.settings.client_id

    async def send(self, call: Call[T]) -> T:
        """Send one call of ``swarm.client.calls``."""
        return await self._transport.send(call)

    async def configure(self, config: TrainConfig | Mapping[str, Any]) -> list[ConfigChange]:
        """Set the training config (server OFFLINE, admin token); returns what changed."""
        return await self.send(calls.configure(config))

    async def config(self) -> TrainConfig:
        """The server's training config."""
        return await self.send(calls.read_config())

    async def start(self) -> Status:
        """Boot the engine and return when it serves; a server that already runs answers at once."""
        return await self.send(calls.start())

    async def stop(self) -> Status:
        """Stop the engine; open episodes are aborted."""
        return await self.send(calls.stop())

    async def status(self) -> Status:
        """State, step and version of the server."""
        return await self.send(calls.status())

    async def poll_step(self, after_step: int, wait_s: float) -> Status:
        """One held status request: returns when ``step > after_step`` or after ``wait_s``, whichever is first."""
        return await self.send(calls.status(after_step, min(wait_s, LONG_POLL_S)))

    async def wait_step(self, after_step: int, timeout_s: float = 600.0) -> Status:
        """Wait until ``step > after_step`` or the server is TRAINED.

        Raises:
            WaitTimeout: not within ``timeout_s``; says what the server waits for.
            StateError: the server is OFFLINE.
        """
        ends = time.monotonic() + timeout_s
        status = await self.status()  # an OFFLINE server is told at once, not after a held request
        while not step_is_over(status, after_step):
            if time.monotonic() >= ends:
                raise step_timeout(status, after_step, timeout_s)
            await asyncio.sleep(0.01)  # a server that does not hold requests must not be hammered
            status = await self.poll_step(after_step, max(0.0, ends - time.monotonic()))
        return status

    async def register(self, role: Role | str = Role.TRAINER) -> ClientLease:
        """Register (episodes do this by themselves) and heartbeat in the background until ``close``."""
        role = Role(role)
        return await self._leases.hold(
            ClientRegistration(client_id=registered_id(self.client_id, role), role=role)
        )

    async def _register_once(self, registration: ClientRegistration) -> ClientLease:
        return await self.send(calls.register(registration))

    async def heartbeat(self, client_id: str | None = None) -> ClientLease:
        """Renew a lease now; the background task does this by itself."""
        return await self.send(calls.heartbeat(client_id or self.client_id))

    async def pool(self) -> PoolSnapshot:
        """What the open step has and needs."""
        return await self.send(calls.pool())

    async def metrics(self, after_step: int = 0) -> list[StepMetrics]:
        """Records of completed steps greater than ``after_step``, in order."""
        return await self.send(calls.metrics(after_step))

    async def trace(self, episode_id: str, *, calls_too: bool = True) -> EpisodeTrace:
        """An episode's record, with every captured call unless ``calls_too`` is False."""
        return await self.send(calls.trace(episode_id, calls=calls_too))

    async def checkpoints(self) -> list[CheckpointInfo]:
        """Saved checkpoints, oldest first."""
        return await self.send(calls.checkpoints())

    async def save_checkpoint(self) -> CheckpointInfo:
        """Save a checkpoint now (admin token)."""
        return await self.send(calls.save_checkpoint())

    async def close_eval_round(self, step: int, planned: int, completed: int) -> Status:
        """Say that the evaluation of ``step`` is over; a gated step then goes on."""
        close = EvalRoundClose(step=step, planned=planned, completed=completed)
        return await self.send(calls.close_eval_round(close))

    async def ensure_registered(self, kind: EpisodeKind) -> str:
        """Register for episodes of ``kind`` unless done; returns the id to ask with."""
        role = role_for(kind)
        client_id = registered_id(self.client_id, role)
        await self._leases.ensure(ClientRegistration(client_id=client_id, role=role))
        return client_id

    async def grant(self, request: GrantRequest) -> Grant:
        """Ask once for an episode (held up to ``request.wait_s``); the answer may be WAIT or TRAINING_COMPLETE."""
        return await self.send(calls.grant(request))

    def episode_of(self, grant: Grant, request: GrantRequest) -> AsyncEpisode:
        """The episode object of a grant that was GRANTED; the caller ends it."""
        return AsyncEpisode(
            grant,
            self._transport,
            self._sdks,
            task_id=request.task_id,
            task_set=request.task_set,
            kind=request.kind,
            chat_timeout_s=self.settings.chat_timeout_s,
        )

    @asynccontextmanager
    async def episode(
        self,
        task_id: str,
        *,
        task_set: str = "default",
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        step: int | None = None,
        idle_deadline_s: float | None = None,
        grant_timeout_s: float = 600.0,
    ) -> AsyncGenerator[AsyncEpisode]:
        """Take an episode; an exception aborts it and goes on, leaving without a finish ends it (see below).

        A train episode that was left without ``finish`` is aborted (there is no reward to record); an eval episode is
        finished without a reward.

        Raises:
            TrainingComplete: no train episode will be granted any more.
            WaitTimeout: none was granted within ``grant_timeout_s``.
        """
        kind = EpisodeKind(kind)
        request = GrantRequest(
            client_id=await self.ensure_registered(kind),
            kind=kind,
            task_set=task_set,
            task_id=task_id,
            step=step,
            wait_s=min(LONG_POLL_S, grant_timeout_s),
            idle_deadline_s=idle_deadline_s,
        )
        episode = self.episode_of(await self._wait_for_grant(request, grant_timeout_s), request)
        try:
            yield episode
        except BaseException as error:
            await self._abort_quietly(episode, f"{type(error).__name__}: {error}")
            raise
        if episode.outcome is None and kind is EpisodeKind.EVAL:
            await episode.finish()
        elif episode.outcome is None:
            logger.warning("%r was left without finish(); it is aborted", episode)
            await episode.abort("left without finish()")

    async def _wait_for_grant(self, request: GrantRequest, timeout_s: float) -> Grant:
        ends = time.monotonic() + timeout_s
        while True:
            grant = await self.grant(request)
            if granted(grant, request):
                return grant
            if time.monotonic() >= ends:
                raise grant_timeout(grant, request, timeout_s)
            await asyncio.sleep(0.05)

    async def _abort_quietly(self, episode: AsyncEpisode, reason: str) -> None:
        """Abort if still open; a failure to do so is logged, because the agent's own error matters more."""
        if episode.outcome is not None:
            return
        try:
            await episode.abort(reason, deadline_s=ABORT_DEADLINE_S)
        except SwarmError as error:
            logger.warning("could not abort %r: %s", episode, error.message)

    async def close(self) -> None:
        """Stop the heartbeats and close the connections. Safe to call twice."""
        await self._leases.close()
        await self._sdks.close_async()
        await self._transport.close()

    async def __aenter__(self) -> AsyncSwarmClient:
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
