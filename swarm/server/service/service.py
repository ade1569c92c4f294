"""The facade that the routes call: every action of the server, and nothing about HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self

from swarm.protocol.clients import (
    AgreeReply,
    AgreeRequest,
    ClientInfo,
    ClientLease,
    ClientRegistration,
    ControllerLease,
    ControllerRequest,
    TaskCursor,
)
from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import (
    AbortRequest,
    AgentKey,
    AgentKeyRequest,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
    PrepareReply,
)
from swarm.protocol.messages import (
    CheckpointInfo,
    ConfigChange,
    ConfigRecord,
    EvalRoundClose,
    Event,
    Status,
)
from swarm.protocol.pool import PoolSnapshot, TaskQueue, TaskQueueInfo
from swarm.protocol.records import EpisodeTrace, StepMetrics
from swarm.server.journal.journal import JOURNAL_FILE, Journal
from swarm.server.keys import Tokens
from swarm.server.model_files import resolve_model
from swarm.server.redaction import Redactor
from swarm.server.service.agents import Agents
from swarm.server.service.agreement import agree
from swarm.server.service.async_training import AsyncTraining
from swarm.server.service.callers import caller_of
from swarm.server.service.checkpoints import Checkpoints
from swarm.server.service.client_notes import ClientNotes
from swarm.server.service.clock import Clock, SystemClock
from swarm.server.service.code_versions import CodeVersions
from swarm.server.service.commits import Commits
from swarm.server.service.configuring import Configuring
from swarm.server.service.core import Core, EngineFactory
from swarm.server.service.deadlines import Deadlines
from swarm.server.service.endings import Endings
from swarm.server.service.engine_life import EngineLife
from swarm.server.service.episodes import Episode
from swarm.server.service.eval_closing import close_round
from swarm.server.service.grants import Grants
from swarm.server.service.inference import Answer, Caller, ChatCall, ChatDelta, Inference
from swarm.server.service.monitor import Monitor
from swarm.server.service.recovery import EngineKeeper
from swarm.server.service.resume import restore
from swarm.server.service.snapshots import client_infos, pool_snapshot, waiting_for
from swarm.server.service.traces import past_trace, redacted
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)

LEASE_S = 60.0
"""A registered client that says nothing for this long is gone."""


class SwarmService:
    """One server: one event loop, one state folder. Make it with ``open``, end it with ``close``."""

    def __init__(
        self,
        *,
        state_dir: Path,
        engine_factory: EngineFactory,
        clock: Clock | None = None,
        tokens: Tokens,
        lease_s: float = LEASE_S,
        redactor: Redactor | None = None,
    ) -> None:
        """Open the journal in ``state_dir`` (made if absent); must be called on the event loop."""
        clock = clock or SystemClock()
        state_dir.mkdir(parents=True, exist_ok=True)
        journal = Journal.open(state_dir / JOURNAL_FILE, now=clock.time)
        self._core = core = Core(
            state_dir=state_dir,
            engine_factory=engine_factory,
            clock=clock,
            tokens=tokens,
            journal=journal,
            lease_s=lease_s,
        )
        self.redactor = redactor or Redactor.of_server(tokens)
        """Hides secrets in what is shown."""
        self._keeper = EngineKeeper(core)
        self._endings = Endings(core, self._changed)
        self._commits = Commits(core, self._endings)
        self._agents = Agents(core)
        self._grants = Grants(core, self._abandon, CodeVersions(core, self._endings))
        self._inference = Inference(core, self._keeper)
        self._checkpoints = Checkpoints(core, self._keeper)
        self._configuring = Configuring(core)
        self._training = AsyncTraining(
            core, self._keeper, self._endings, self._checkpoints, self._changed, self._fail
        )
        self._training.at_boundary = self._configuring.apply_pending
        self._life = EngineLife(
            core, self._keeper, self._endings, self._training, self._configuring, self._changed
        )
        self.monitor = Monitor(core, status=self.status, held=lambda: self._inference.held)
        self._deadlines = Deadlines(core, self._endings, self._changed)
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._closed = False

    @classmethod
    async def open(
        cls,
        *,
        state_dir: Path,
        engine_factory: EngineFactory,
        tokens: Tokens,
        clock: Clock | None = None,
        lease_s: float = LEASE_S,
        resume: bool = False,
        redactor: Redactor | None = None,
    ) -> Self:
        """Return a server that is OFFLINE; with ``resume`` it has the journal's run, and ``start`` goes on with it.

        ``redactor`` hides secrets in traces; None: the server's own tokens and keys are hidden.

        Raises:
            JournalFailed: The journal is locked by another server or damaged.
            ConfigError: The journal's model is not there any more.
        """
        service = cls(
            state_dir=state_dir,
            engine_factory=engine_factory,
            clock=clock,
            tokens=tokens,
            lease_s=lease_s,
            redactor=redactor,
        )
        if resume:
            service._resume()
        service._tasks["deadlines"] = asyncio.create_task(service._deadlines.run())
        return service

    # -- control --------------------------------------------------------------------------------------------

    @property
    def config(self) -> TrainConfig:
        """The newest accepted configuration, in force or waiting for its step; ``StateError`` when none was set yet."""
        return self._configuring.accepted

    async def configure(
        self, config: TrainConfig, *, who: str = "", dry_run: bool = False
    ) -> list[ConfigChange]:
        """Set or change the configuration; see ``Configuring.configure``. ``who`` is the client that asks.

        Raises:
            StateError: A key needs a restart (the text names each), or another client holds the controller lease.
            ConfigError: The model's folder or the tool parser does not exist.
        """
        if not dry_run:
            self._steering(who, "configuring")
        run = self._core.incarnation
        changes = self._configuring.configure(config, who=who, dry_run=dry_run)
        if self._core.incarnation != run:
            self._endings.forsake("a new run began before it was committed")
        self._life.go_on()
        return changes

    def config_changes(self) -> list[ConfigRecord]:
        """Return the changes of the present run's configuration, in order of acceptance."""
        return self._configuring.changes()

    def began_with(self, config: TrainConfig | None) -> bool:
        """Whether the journal's run began with this configuration, whatever was changed since."""
        return config is not None and self._core.journal.config() == config

    def controller(self, request: ControllerRequest) -> ControllerLease:
        """Take, renew or give back the controller lease; see ``Controller.ask``."""
        before = self._core.controller.holder
        lease = self._core.controller.ask(request)
        if self._core.controller.holder != before:
            self._core.events.try_add("controller", client_id=self._core.controller.holder)
        return lease

    async def start(self, *, who: str = "") -> Status:
        """Boot the engine and begin (or go on with) training; returns when it serves. See ``EngineLife.start``.

        Raises:
            StateError: No configuration, or another client holds the controller lease.
            EngineFailed: The engine did not boot; the state is OFFLINE again and ``status.failure`` says why.
        """
        self._steering(who, "starting")
        await self._life.start()
        return self.status()

    async def stop(self, *, who: str = "") -> Status:
        """End the engine; open episodes are aborted, finished ones of the open step stay. Safe in any state.

        Raises:
            StateError: Another client holds the controller lease.
        """
        self._steering(who, "stopping")
        await self._life.stop("the engine was stopped")
        return self.status()

    def _steering(self, who: str, action: str) -> None:
        self._core.controller.require(who, action)
        self._core.controller.seen(who)

    def status(self) -> Status:
        """Return where the run stands."""
        return self._core.status(waiting_for(self._core, self._grants.waiting()))

    @property
    def position(self) -> tuple[int, int | None]:
        """Step and number of the policy version (None before a configuration), without the rest of a status: cheap on each call."""
        core = self._core
        return core.trained_step, None if core.configured is None else core.version

    @property
    def reads_pictures(self) -> bool:
        """Whether calls may hold pictures: the engine and the model that it serves read them."""
        return bool(self._core.image_tokens)

    @property
    def model(self) -> str | None:
        """Path of the configured model."""
        configured = self._core.configured
        return configured.model.path if configured is not None else None

    async def wait_step(self, after_step: int, wait_s: float, *, opened: bool = False) -> Status:
        """Return once ``step > after_step`` (``opened``: that of the pool), or after ``wait_s``; the step of the answer tells which."""
        core = self._core
        end = core.clock.monotonic() + wait_s
        while (core.step if opened else core.trained_step) <= after_step and not self._closed:
            left = end - core.clock.monotonic()
            if left <= 0:
                break
            await core.bell.wait(left)
        return self.status()

    # -- clients and episodes -------------------------------------------------------------------------------

    def register(self, registration: ClientRegistration) -> ClientLease:
        """Begin a client's lease; the same id again (by another instance) is a restart, and its open episodes are aborted."""
        client_id = registration.client_id
        if self._core.clients.is_restart(registration):
            self._endings.lose_client(client_id, f"client {client_id!r} registered again")
        self._core.clients.register(registration)
        hit(Point.CLIENT_REGISTERED)
        self._changed()  # who must agree (C4) may have changed
        return self._lease(client_id)

    def heartbeat(self, client_id: str, instance: str = "") -> ClientLease:
        """Renew a lease.

        Raises:
            NotFoundError: Not registered, or the lease ended.
            ClientReplaced: A later instance registered under the same id.
        """
        self._core.clients.heartbeat(client_id, instance)
        self._core.controller.seen(client_id)
        return self._lease(client_id)

    def agree(self, client_id: str, request: AgreeRequest) -> AgreeReply:
        """Take a trainer's agreement to train on what the pool has (C4, C5); see ``agreement.agree``."""
        reply = agree(self._core, client_id, request)
        self._changed()
        return reply

    def put_task_queue(self, name: str, queue: TaskQueue) -> TaskQueueInfo:
        """Set the shared queue of a task set; see ``TaskQueues.put``."""
        info = self._core.queues.put(name, queue)
        self._core.events.try_add(
            "task_queue", incarnation=self._core.incarnation, **info.model_dump()
        )
        self._changed()
        return info

    def task_queues(self) -> list[TaskQueueInfo]:
        """Return where each shared queue stands, by name."""
        return self._core.queues.infos()

    def clients(self, *, gone: bool = False) -> list[ClientInfo]:
        """Return the clients that have a lease, with ``gone`` also those of this process's life that have none."""
        return client_infos(self._core, gone=gone)

    def set_cursor(self, client_id: str, cursor: TaskCursor) -> ClientLease:
        """Keep where a client stands in its order of tasks; renews its lease.

        Raises:
            NotFoundError: Not registered, or the lease ended.
            StateError: No configuration, so no run that the cursor could be of.
        """
        core = self._core
        core.config  # noqa: B018 - raises when there is none
        core.clients.heartbeat(client_id)
        core.client_notes.tell(client_id, cursor, core.incarnation)
        return self._lease(client_id)

    @property
    def client_notes(self) -> ClientNotes:
        """What is kept of each client for good; the routes ask it to whom an id belongs."""
        return self._core.client_notes

    async def grant(self, request: GrantRequest, *, base_url: str) -> Grant:
        """Grant an episode or answer WAIT (after at most ``wait_s``) or TRAINING_COMPLETE; see ``Grants.grant``."""
        self._core.clients.asks(request)
        return await self._grants.grant(request, base_url)

    async def finish(self, episode_id: str, request: FinishRequest) -> FinishReply:
        """End an episode with its reward; see ``Endings.finish``."""
        return self._endings.finish(episode_id, request)

    async def prepare(self, episode_id: str, request: FinishRequest) -> PrepareReply:
        """Promise that a finish will be taken; see ``Commits.prepare``."""
        return self._commits.prepare(episode_id, request)

    async def commit(self, episode_id: str) -> FinishReply:
        """Finish a prepared episode; see ``Commits.commit``."""
        return self._commits.commit(episode_id)

    def confirm(self, episode_id: str, *, base_url: str) -> Grant:
        """Make a reservation an episode; see ``Grants.confirm``."""
        return self._grants.confirm(episode_id, base_url)

    def agent_key(self, episode_id: str, request: AgentKeyRequest, *, base_url: str) -> AgentKey:
        """Return the key of one agent of an episode; see ``Agents.key``."""
        return self._agents.key(episode_id, request, base_url)

    async def abort(self, episode_id: str, request: AbortRequest) -> FinishReply:
        """End an episode without one; see ``Endings.abort``."""
        return self._endings.abort(episode_id, request)

    def remembered(self, episode_id: str) -> Episode | None:
        """Return an episode of this step or the last that is in memory; None: ask for its trace."""
        return self._core.book.get(episode_id)

    def trace(self, episode_id: str, *, calls: bool) -> EpisodeTrace:
        """Return an episode of this or an earlier step, with its calls or only their number; secrets in it are hidden.

        Raises:
            NotFoundError: No such episode.
        """
        episode = self._core.book.get(episode_id)
        if episode is not None:
            trace = episode.trace(calls=calls)
        else:
            trace = past_trace(self._core.journal, episode_id, calls=calls)
        return redacted(trace, self.redactor)

    def pool(self) -> PoolSnapshot:
        """Return what the open step has and needs."""
        return pool_snapshot(self._core)

    def metrics(self, after_step: int) -> list[StepMetrics]:
        """Return the records of steps later than ``after_step``, oldest first."""
        return self._core.journal.step_metrics(after_step) if self._core.configured else []

    async def close_eval_round(self, closing: EvalRoundClose) -> Status:
        """Close the eval round of a step; a gate that waited for it opens. A missed round stays missed.

        Raises:
            StateError: The step has not begun, so nothing of it can have been evaluated.
        """
        close_round(self._core, closing)
        self._changed()
        return self.status()

    def events(self, after_seq: int) -> AsyncGenerator[Event]:
        """Yield events with larger numbers and then each new one, until ``close``."""
        return self._core.events.follow(after_seq)

    # -- checkpoints ----------------------------------------------------------------------------------------

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the saved checkpoints, oldest first."""
        return self._core.journal.checkpoints()

    async def save_checkpoint(self) -> CheckpointInfo:
        """Save the current weights now.

        Raises:
            StateError: The engine does not run, or its weights are moving.
            CheckpointFailed: It could not be written.
            EngineFailed: It died in it.
        """
        return await self._checkpoints.save_now()

    # -- inference ------------------------------------------------------------------------------------------

    def episode_for_key(self, api_key: str) -> Episode:
        """Return the open episode that a key is for; ``caller_of`` also says which agent asks.

        Raises:
            AuthError: Not a key of this server, or expired.
            EpisodeGone: Its episode ended or did not survive a restart.
        """
        return self.caller_of(api_key).episode

    def caller_of(self, api_key: str) -> Caller:
        """Return the open episode that a key is for, and the agent in it. Raises like ``episode_for_key``."""
        return caller_of(self._core, api_key)

    async def answer(self, episode: Episode, call: ChatCall) -> Answer:
        """Answer one call; see ``Inference.answer``."""
        return await self._inference.answer(episode, call)

    def answer_stream(self, episode: Episode, call: ChatCall) -> AsyncGenerator[ChatDelta]:
        """Answer one call in pieces; see ``Inference.answer_stream``."""
        return self._inference.answer_stream(episode, call)

    def count_tokens(self, episode: Episode, call: ChatCall) -> int:
        """Return how many tokens the call's prompt has; see ``Inference.count_tokens``."""
        return self._inference.count_tokens(episode, call)

    def response_id(self, episode: Episode) -> str:
        """Return the name that the next answer of the episode will have."""
        return self._inference.response_id(episode)

    async def close(self) -> None:
        """Stop everything and close the journal. Safe to call twice."""
        if self._closed:
            return
        await self._life.stop("the server shut down")
        self._closed = True
        await self._cancel("deadlines")
        self._core.bell.ring()
        self._core.events.close()
        self._core.journal.close()

    # -- inside ---------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        core = self._core
        state = core.journal.load_state()
        if state is None:
            return
        core.chat_tokenizer = ChatTokenizer.from_folder(resolve_model(state.config.model.path))
        restore(core, state, core.chat_tokenizer)
        self._configuring.restore()
        if state.metrics:
            core.alarms.step_done(state.metrics[-1], state.config.sampling.divergence_alarm)

    def _changed(self) -> None:
        """Something that grants or the step loop wait for may have happened."""
        self._training.check()
        self._grants.pump()

    def _abandon(self, episode: Episode, why: str) -> None:
        self._endings.abort(episode.episode_id, AbortRequest(reason=why))

    def _lease(self, client_id: str) -> ClientLease:
        core = self._core
        return ClientLease(
            client_id=client_id,
            lease_s=core.clients.lease_s,
            status=self.status(),
            cursor=core.client_notes.cursor(client_id, core.incarnation),
            cursors=core.client_notes.cursors(client_id, core.incarnation),
        )

    def _fail(self, why: str) -> None:
        self._life.fail(why)

    async def _cancel(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
