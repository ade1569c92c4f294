"""``AsyncSwarmClient``: every control route, and episodes as async context managers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from swarm.client import calls, watching
from swarm.client.base import ABORT_DEADLINE_S, ClientBase
from swarm.client.calls import LONG_POLL_S, Call
from swarm.client.controlling import AsyncControl
from swarm.client.episode import AsyncEpisode
from swarm.client.leases import AsyncLeases, role_for
from swarm.client.settings import ClientSettings
from swarm.client.transport_async import AsyncTransport
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


class AsyncSwarmClient(ClientBase):
    """A client of one swarm server; use it in one event loop, close it (``async with`` does)."""

    def _connect(self, settings: ClientSettings) -> None:
        super()._connect(settings)
        self._transport = AsyncTransport(settings)
        self._leases = AsyncLeases(lambda r: self.send(calls.register(r)), self.heartbeat)
        self._control = AsyncControl(lambda release: self.send(self.control_call(release=release)))

    async def send(self, call: Call[T]) -> T:
        """Send one call of ``swarm.client.calls``."""
        return await self._transport.send(call)

    async def configure(
        self, config: TrainConfig | Mapping[str, Any], *, dry_run: bool = False
    ) -> list[ConfigChange]:
        """Set or change the training config (admin token); returns what changed and when that takes effect.

        A running server takes only ``STEP`` changes (``swarm.protocol.effects``), from the next step on; ``dry_run`` shows
        the changes and what they take, and changes nothing.

        Raises:
            ConfigError: a key or value is wrong.
            StateError: a key needs a restart (each is named), or another client holds the controller lease.
        """
        return await self.send(calls.configure(config, dry_run=dry_run))

    async def controller(self, *, release: bool = False) -> ControllerLease:
        """Take the controller lease (admin token) and keep it until ``close``, or give it back.

        Meanwhile only this client configures, starts and stops.

        Raises:
            StateError: another client holds it.
        """
        return await (self._control.release() if release else self._control.take())

    async def config(self) -> TrainConfig:
        """The server's training config, the newest that it accepted: a change may wait for the next step."""
        return await self.send(calls.read_config())

    async def config_changes(self) -> list[ConfigRecord]:
        """What was changed since the run began: who, when, and from which step on, in order of acceptance."""
        return await self.send(calls.config_changes())

    async def start(self) -> Status:
        """Boot the engine and return when it serves; a server that already runs answers at once."""
        return await self.send(calls.start())

    async def stop(self) -> Status:
        """Stop the engine; open episodes are aborted."""
        return await self.send(calls.stop())

    async def status(self) -> Status:
        """State, step and version of the server."""
        return await self.send(calls.status())

    async def poll_step(self, after_step: int, wait_s: float, *, opened: bool = False) -> Status:
        """One held status request: returns when ``step > after_step`` (``opened``: that of the pool) or after ``wait_s``."""
        return await self.send(calls.status(after_step, min(wait_s, LONG_POLL_S), opened=opened))

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

    async def register(
        self, role: Role | str = Role.TRAINER, code_hash: str | None = None
    ) -> ClientLease:
        """Register (episodes do this by themselves) and heartbeat in the background until ``close``."""
        return await self._leases.hold(self.registration(Role(role), code_hash))

    async def heartbeat(self, client_id: str | None = None) -> ClientLease:
        """Renew a lease now; the background task does this by itself."""
        call = calls.heartbeat(client_id or self.client_id, self.settings.instance)
        return await self.send(call)

    async def clients(self, *, gone: bool = False) -> list[ClientInfo]:
        """Who is connected and what each has done, in order of registration; with ``gone`` also those without a lease."""
        return await self.send(calls.clients(gone=gone))

    async def set_cursor(self, cursor: TaskCursor, client_id: str | None = None) -> ClientLease:
        """Tell the server where this client stands in its tasks (``run_episodes`` does this by itself)."""
        return await self.send(calls.set_cursor(client_id or self.client_id, cursor))

    async def agree(self, for_step: int | None = None) -> AgreeReply:
        """Agree that the open step (or ``for_step``) is taken with what the pool has (policies C4 and C5).

        Registers as a trainer, if need be again (the server restarted). Idempotent.

        Raises:
            StateError: the step has passed or not begun, training is complete, or the policy asks nobody.
        """
        client_id = await self.ensure_registered(EpisodeKind.TRAIN)
        step = (await self.pool()).step if for_step is None else for_step
        try:
            return await self.send(calls.agree(client_id, step))
        except NotFoundError:
            await self._leases.again(client_id)
            return await self.send(calls.agree(client_id, step))

    async def set_task_queue(self, task_set: str, queue: TaskQueue) -> TaskQueueInfo:
        """Give the server the tasks that all clients of ``task_set`` share (``run_episodes(shared=True)`` does this)."""
        return await self.send(calls.set_task_queue(task_set, queue))

    async def task_queues(self) -> list[TaskQueueInfo]:
        """Where the shared queues stand, by name."""
        return await self.send(calls.task_queues())

    async def pool(self) -> PoolSnapshot:
        """What the open step has and needs."""
        return await self.send(calls.pool())

    async def metrics(self, after_step: int = 0) -> list[StepMetrics]:
        """Records of completed steps greater than ``after_step``, in order."""
        return await self.send(calls.metrics(after_step))

    async def trace(self, episode_id: str, *, calls_too: bool = True) -> EpisodeTrace:
        """An episode's record, with every captured call unless ``calls_too`` is False."""
        return await self.send(calls.trace(episode_id, calls=calls_too))

    async def overview(self) -> Overview:
        """What goes on now, in one answer: what ``swarm watch`` shows."""
        return await self.send(watching.overview())

    async def page_ticket(self, episode_id: str, valid_s: float | None = None) -> PageTicket:
        """An address that opens the episode's web page in a browser for a while, without a token."""
        return await self.send(watching.page_ticket(episode_id, valid_s))

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

    async def ensure_registered(self, kind: EpisodeKind, code_hash: str | None = None) -> str:
        """Register for episodes of ``kind`` unless done (with this ``code_hash``, if given); returns the id to ask with."""
        registration = self.registration(role_for(kind), code_hash)
        await self._leases.ensure(registration, any_code=code_hash is None)
        return registration.client_id

    async def grant(self, request: GrantRequest) -> Grant:
        """Ask once for an episode (held up to ``request.wait_s``); the answer may be WAIT or TRAINING_COMPLETE."""
        return await self.send(calls.grant(self.named(request)))

    def episode_of(self, grant: Grant, request: GrantRequest) -> AsyncEpisode:
        """The episode object of a grant that was GRANTED; the caller ends it."""
        return AsyncEpisode(
            grant,
            self._transport,
            self._sdks,
            **self.facts_of(grant, request),
        )

    @asynccontextmanager
    async def episode(
        self,
        task_id: str = "",
        *,
        task_set: str = "default",
        kind: EpisodeKind | str = EpisodeKind.TRAIN,
        step: int | None = None,
        throttle: float | None = None,
        idle_deadline_s: float | None = None,
        grant_timeout_s: float = 600.0,
    ) -> AsyncGenerator[AsyncEpisode]:
        """Take an episode; an exception aborts it and goes on, leaving without a finish ends it (see below).

        Without a ``task_id`` the shared queue of ``task_set`` chooses (``episode.task_id`` says what). With a ``throttle`` (1 or
        more) the grant waits while this client has more than that times its fair share of the step.

        A train episode that was left without ``finish`` is aborted (there is no reward to record); an eval episode is
        finished without a reward.

        Raises:
            TrainingComplete: no train episode will be granted any more.
            WaitTimeout: none was granted within ``grant_timeout_s``.
        """
        kind = EpisodeKind(kind)
        await self.ensure_registered(kind)
        more = {
            "task_set": task_set,
            "step": step,
            "throttle": throttle,
            "idle_deadline_s": idle_deadline_s,
        }
        request = self.request_for(task_id, kind, grant_timeout_s, **more)
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
        await self._control.close()
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
