"""``SwarmClient``: the synchronous twin of ``AsyncSwarmClient``; safe to use from many threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import calls
from swarm.client.calls import LONG_POLL_S, Call
from swarm.client.episode import Episode
from swarm.client.leases import SyncLeases, registered_id, role_for
from swarm.client.openai_clients import OpenAIClients
from swarm.client.settings import ClientSettings, new_client_id
from swarm.client.transport_sync import SyncTransport
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


class SwarmClient:
    """A client of one swarm server; close it (``with`` does)."""

    def __init__(
        self,
        url: str,
        token: str,
        client_id: str | None = None,
        *,
        timeout_s: float = 30.0,
        chat_timeout_s: float = 600.0,
    ) -> None:
        """Connect lazily to the server at ``url``; the arguments are those of ``AsyncSwarmClient``."""
        self.settings = ClientSettings(
            url,
            token,
            client_id or new_client_id(),
            timeout_s=timeout_s,
            chat_timeout_s=chat_timeout_s,
        )
        self._transport = SyncTransport(self.settings)
        self._sdks = OpenAIClients(chat_timeout_s)
        self._leases = SyncLeases(lambda r: self.send(calls.register(r)), self.heartbeat)

    @property
    def client_id(self) -> str:
        """The id that this client registers."""
        return self.settings.client_id

    def send(self, call: Call[T]) -> T:
        """Send one call of ``swarm.client.calls``."""
        return self._transport.send(call)

    def configure(self, config: TrainConfig | Mapping[str, Any]) -> list[ConfigChange]:
        """Set the training config (server OFFLINE, admin token); returns what changed."""
        return self.send(calls.configure(config))

    def config(self) -> TrainConfig:
        """The server's training config."""
        return self.send(calls.read_config())

    def start(self) -> Status:
        """Boot the engine and return when it serves; a server that already runs answers at once."""
        return self.send(calls.start())

    def stop(self) -> Status:
        """Stop the engine; open episodes are aborted."""
        return self.send(calls.stop())

    def status(self) -> Status:
        """State, step and version of the server."""
        return self.send(calls.status())

    def wait_step(self, after_step: int, timeout_s: float = 600.0) -> Status:
        """Wait until ``step > after_step`` or the server is TRAINED.

        Raises:
            WaitTimeout: not within ``timeout_s``; says what the server waits for.
            StateError: the server is OFFLINE.
        """
        ends = time.monotonic() + timeout_s
        status = self.status()  # an OFFLINE server is told at once, not after a held request
        while not step_is_over(status, after_step):
            if time.monotonic() >= ends:
                raise step_timeout(status, after_step, timeout_s)
            time.sleep(0.01)  # a server that does not hold requests must not be hammered
            wait_s = min(LONG_POLL_S, max(0.0, ends - time.monotonic()))
            status = self.send(calls.status(after_step, wait_s))
        return status

    def register(self, role: Role | str = Role.TRAINER) -> ClientLease:
        """Register (episodes do this by themselves) and heartbeat in the background until ``close``."""
        role = Role(role)
        return self._leases.hold(
            ClientRegistration(client_id=registered_id(self.client_id, role), role=role)
        )

    def heartbeat(self, client_id: str | None = None) -> ClientLease:
        """Renew a lease now; the background thread does this by itself."""
        return self.send(calls.heartbeat(client_id or self.client_id))

    def pool(self) -> PoolSnapshot:
        """What the open step has and needs."""
        return self.send(calls.pool())

    def metrics(self, after_step: int = 0) -> list[StepMetrics]:
        """Records of completed steps greater than ``after_step``, in order."""
        return self.send(calls.metrics(after_step))

    def trace(self, episode_id: str, *, calls_too: bool = True) -> EpisodeTrace:
        """An episode's record, with every captured call unless ``calls_too`` is False."""
        return self.send(calls.trace(episode_id, calls=calls_too))

    def checkpoints(self) -> list[CheckpointInfo]:
        """Saved checkpoints, oldest first."""
        return self.send(calls.checkpoints())

    def save_checkpoint(self) -> CheckpointInfo:
        """Save a checkpoint now (admin token)."""
        return self.send(calls.save_checkpoint())

    def close_eval_round(self, step: int, planned: int, completed: int) -> Status:
        """Say that the evaluation of ``step`` is over; a gated step then goes on."""
        close = EvalRoundClose(step=step, planned=planned, completed=completed)
        return self.send(calls.close_eval_round(close))

    def ensure_registered(self, kind: EpisodeKind) -> str:
        """Register for episodes of ``kind`` unless done; returns the id to ask with."""
        role = role_for(kind)
        client_id = registered_id(self.client_id, role)
        self._leases.ensure(ClientRegistration(client_id=client_id, role=role))
        return client_id

    def grant(self, request: GrantRequest) -> Grant:
        """Ask once for an episode (held up to ``request.wait_s``); the answer may be WAIT or TRAINING_COMPLETE."""
        return self.send(calls.grant(request))

    def episode_of(self, grant: Grant, request: GrantRequest) -> Episode:
        """The episode object of a grant that was GRANTED; the caller ends it."""
        return Episode(
            grant,
            self._transport,
            self._sdks,
            task_id=request.task_id,
            task_set=request.task_set,
            kind=request.kind,
            chat_timeout_s=self.settings.chat_timeout_s,
        )

    @contextmanager
    def episode(
        self,
        task_id: str,
        *,
        task_set: str = "default",
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        step: int | None = None,
        idle_deadline_s: float | None = None,
        grant_timeout_s: float = 600.0,
    ) -> Generator[Episode]:
        """Take an episode; an exception aborts it and goes on. Rules and errors are those of ``AsyncSwarmClient.episode``."""
        kind = EpisodeKind(kind)
        request = GrantRequest(
            client_id=self.ensure_registered(kind),
            kind=kind,
            task_set=task_set,
            task_id=task_id,
            step=step,
            wait_s=min(LONG_POLL_S, grant_timeout_s),
            idle_deadline_s=idle_deadline_s,
        )
        episode = self.episode_of(self._wait_for_grant(request, grant_timeout_s), request)
        try:
            yield episode
        except BaseException as error:
            self._abort_quietly(episode, f"{type(error).__name__}: {error}")
            raise
        if episode.outcome is None and kind is EpisodeKind.EVAL:
            episode.finish()
        elif episode.outcome is None:
            logger.warning("%r was left without finish(); it is aborted", episode)
            episode.abort("left without finish()")

    def _wait_for_grant(self, request: GrantRequest, timeout_s: float) -> Grant:
        ends = time.monotonic() + timeout_s
        while True:
            grant = self.grant(request)
            if granted(grant, request):
                return grant
            if time.monotonic() >= ends:
                raise grant_timeout(grant, request, timeout_s)
            time.sleep(0.05)

    def _abort_quietly(self, episode: Episode, reason: str) -> None:
        """Abort if still open; a failure to do so is logged, because the agent's own error matters more."""
        if episode.outcome is not None:
            return
        try:
            episode.abort(reason, deadline_s=ABORT_DEADLINE_S)
        except SwarmError as error:
            logger.warning("could not abort %r: %s", episode, error.message)

    def close(self) -> None:
        """Stop the heartbeats and close the connections. Safe to call twice."""
        self._leases.close()
        self._sdks.close_sync()
        self._transport.close()

    def __enter__(self) -> SwarmClient:
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
