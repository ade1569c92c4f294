"""``SwarmClient``: the synchronous twin of ``AsyncSwarmClient``; safe to use from many threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import calls, watching
from swarm.client.base import ABORT_DEADLINE_S, ClientBase
from swarm.client.calls import LONG_POLL_S, Call
from swarm.client.controlling import SyncControl
from swarm.client.episode import Episode
from swarm.client.leases import SyncLeases, role_for
from swarm.client.settings import ClientSettings
from swarm.client.transport_sync import SyncTransport
from swarm.client.waiting import grant_timeout, granted, step_is_over, step_timeout
from swarm.protocol.clients import AgreeReply, ClientInfo, ClientLease, ControllerLease, TaskCursor
from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.errors import NotFoundError, SwarmError
from swarm.protocol.messages import (
    CheckpointInfo,
    ConfigChange,
    ConfigRecord,
    EvalRoundClose,
    Status,
)
from swarm.protocol.overview import Overview, PageTicket
from swarm.protocol.pool import PoolSnapshot, TaskQueue, TaskQueueInfo
from swarm.protocol.records import EpisodeTrace, StepMetrics
from swarm.protocol.states import EpisodeKind, Role

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SwarmClient(ClientBase):
    """A client of one swarm server; close it (``with`` does)."""

    def _connect(self, settings: ClientSettings) -> None:
        super()._connect(settings)
        self._transport = SyncTransport(settings)
        self._leases = SyncLeases(lambda r: self.send(calls.register(r)), self.heartbeat)
        self._control = SyncControl(lambda release: self.send(self.control_call(release=release)))

    def send(self, call: Call[T]) -> T:
        """Send one call of ``swarm.client.calls``."""
        return self._transport.send(call)

    def configure(
        self, config: TrainConfig | Mapping[str, Any], *, dry_run: bool = False
    ) -> list[ConfigChange]:
        """Set or change the training config (admin token); returns what changed and when that takes effect.

        Rules and errors are those of ``AsyncSwarmClient.configure``.
        """
        return self.send(calls.configure(config, dry_run=dry_run))

    def controller(self, *, release: bool = False) -> ControllerLease:
        """Take the controller lease (admin token) and keep it until ``close``, or give it back.

        Rules and errors are those of ``AsyncSwarmClient.controller``.
        """
        return self._control.release() if release else self._control.take()

    def config(self) -> TrainConfig:
        """The server's training config, the newest that it accepted: a change may wait for the next step."""
        return self.send(calls.read_config())

    def config_changes(self) -> list[ConfigRecord]:
        """What was changed since the run began: who, when, and from which step on, in order of acceptance."""
        return self.send(calls.config_changes())

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

    def register(
        self, role: Role | str = Role.TRAINER, code_hash: str | None = None
    ) -> ClientLease:
        """Register (episodes do this by themselves) and heartbeat in the background until ``close``."""
        return self._leases.hold(self.registration(Role(role), code_hash))

    def heartbeat(self, client_id: str | None = None) -> ClientLease:
        """Renew a lease now; the background thread does this by itself."""
        call = calls.heartbeat(client_id or self.client_id, self.settings.instance)
        return self.send(call)

    def clients(self, *, gone: bool = False) -> list[ClientInfo]:
        """Who is connected and what each has done, in order of registration; with ``gone`` also those without a lease."""
        return self.send(calls.clients(gone=gone))

    def set_cursor(self, cursor: TaskCursor, client_id: str | None = None) -> ClientLease:
        """Tell the server where this client stands in its tasks (``run_episodes`` does this by itself)."""
        return self.send(calls.set_cursor(client_id or self.client_id, cursor))

    def agree(self, for_step: int | None = None) -> AgreeReply:
        """Agree that the open step is taken with what the pool has (C4, C5); as ``AsyncSwarmClient.agree``."""
        client_id = self.ensure_registered(EpisodeKind.TRAIN)
        step = self.pool().step if for_step is None else for_step
        try:
            return self.send(calls.agree(client_id, step))
        except NotFoundError:
            self._leases.again(client_id)
            return self.send(calls.agree(client_id, step))

    def set_task_queue(self, task_set: str, queue: TaskQueue) -> TaskQueueInfo:
        """Give the server the tasks that all clients of ``task_set`` share (``run_episodes(shared=True)`` does this)."""
        return self.send(calls.set_task_queue(task_set, queue))

    def task_queues(self) -> list[TaskQueueInfo]:
        """Where the shared queues stand, by name."""
        return self.send(calls.task_queues())

    def pool(self) -> PoolSnapshot:
        """What the open step has and needs."""
        return self.send(calls.pool())

    def metrics(self, after_step: int = 0) -> list[StepMetrics]:
        """Records of completed steps greater than ``after_step``, in order."""
        return self.send(calls.metrics(after_step))

    def trace(self, episode_id: str, *, calls_too: bool = True) -> EpisodeTrace:
        """An episode's record, with every captured call unless ``calls_too`` is False."""
        return self.send(calls.trace(episode_id, calls=calls_too))

    def overview(self) -> Overview:
        """What goes on now, in one answer: what ``swarm watch`` shows."""
        return self.send(watching.overview())

    def page_ticket(self, episode_id: str, valid_s: float | None = None) -> PageTicket:
        """An address that opens the episode's web page in a browser for a while, without a token."""
        return self.send(watching.page_ticket(episode_id, valid_s))

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

    def ensure_registered(self, kind: EpisodeKind, code_hash: str | None = None) -> str:
        """Register for episodes of ``kind`` unless done (with this ``code_hash``, if given); returns the id to ask with."""
        registration = self.registration(role_for(kind), code_hash)
        self._leases.ensure(registration, any_code=code_hash is None)
        return registration.client_id

    def grant(self, request: GrantRequest) -> Grant:
        """Ask once for an episode (held up to ``request.wait_s``); the answer may be WAIT or TRAINING_COMPLETE."""
        return self.send(calls.grant(self.named(request)))

    def episode_of(self, grant: Grant, request: GrantRequest) -> Episode:
        """The episode object of a grant that was GRANTED; the caller ends it."""
        return Episode(
            grant,
            self._transport,
            self._sdks,
            **self.facts_of(grant, request),
        )

    @contextmanager
    def episode(
        self,
        task_id: str = "",
        *,
        task_set: str = "default",
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        step: int | None = None,
        throttle: float | None = None,
        idle_deadline_s: float | None = None,
        grant_timeout_s: float = 600.0,
    ) -> Generator[Episode]:
        """Take an episode; an exception aborts it and goes on. Rules and errors are those of ``AsyncSwarmClient.episode``."""
        kind = EpisodeKind(kind)
        self.ensure_registered(kind)
        more = {
            "task_set": task_set,
            "step": step,
            "throttle": throttle,
            "idle_deadline_s": idle_deadline_s,
        }
        request = self.request_for(task_id, kind, grant_timeout_s, **more)
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
        self._control.close()
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
