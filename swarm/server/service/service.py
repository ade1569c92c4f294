"""The facade that the routes call: every action of the server, and nothing about HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Self

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import (
    EngineFailed,
    EpisodeGone,
    JournalFailed,
    NotFoundError,
    StateError,
    SwarmError,
)
from swarm.protocol.messages import (
    AbortRequest,
    CheckpointInfo,
    ClientLease,
    ClientRegistration,
    ConfigChange,
    EpisodeTrace,
    EvalRoundClose,
    Event,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
    PoolSnapshot,
    Status,
    StepMetrics,
)
from swarm.protocol.states import EngineState
from swarm.server.journal.journal import JOURNAL_FILE, Journal
from swarm.server.journal.records import CommittedBatch, EvalRound
from swarm.server.keys import Tokens
from swarm.server.model_files import resolve_model
from swarm.server.service.checkpoints import Checkpoints
from swarm.server.service.clock import Clock, SystemClock
from swarm.server.service.core import Core, EngineFactory
from swarm.server.service.deadlines import Deadlines
from swarm.server.service.endings import Endings
from swarm.server.service.episodes import Episode
from swarm.server.service.evals import EvalRounds, EvalSlots
from swarm.server.service.grants import Grants
from swarm.server.service.inference import ChatCall, ChatDelta, ChatReply, Inference
from swarm.server.service.recovery import EngineKeeper
from swarm.server.service.resume import restore
from swarm.server.service.snapshots import changes_between, pool_snapshot, waiting_for
from swarm.server.service.training import Training
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls import tool_parser

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
        self._keeper = EngineKeeper(core)
        self._endings = Endings(core, self._changed)
        self._grants = Grants(core, self._abandon)
        self._inference = Inference(core, self._keeper)
        self._checkpoints = Checkpoints(core, self._keeper)
        self._training = Training(
            core, self._keeper, self._endings, self._checkpoints, self._changed, self._fail
        )
        self._keeper.on_up = self._changed
        self._keeper.on_lost = self._fail
        self._deadlines = Deadlines(core, self._endings, self._changed)
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._starting: asyncio.Task[Status] | None = None
        self._halting = asyncio.Lock()
        """Held while an engine is being ended: the next one waits until it is gone."""
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
    ) -> Self:
        """Return a server that is OFFLINE; with ``resume`` it has the journal's run, and ``start`` goes on with it.

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
        )
        if resume:
            service._resume()
        service._tasks["deadlines"] = asyncio.create_task(service._deadlines.run())
        return service

    # -- control --------------------------------------------------------------------------------------------

    @property
    def config(self) -> TrainConfig:
        """The training configuration; ``StateError`` when none was set yet."""
        return self._core.config

    async def configure(self, config: TrainConfig) -> list[ConfigChange]:
        """Set the configuration and begin a new incarnation; the same configuration again changes nothing, in any state.

        Raises:
            StateError: Something differs and the engine is not OFFLINE; the hint names the keys.
            ConfigError: The model's folder or the tool parser does not exist.
        """
        core = self._core
        changes = changes_between(core.configured, config)
        if core.configured is not None and not changes:
            return []
        if core.lifecycle.state is not EngineState.OFFLINE:
            keys = ", ".join(change.key for change in changes)
            raise StateError(
                f"The engine is {core.lifecycle.state.value}; its configuration cannot change.",
                hint=f"Stop the engine first. These keys differ: {keys}.",
            )
        resolve_model(config.model.path)
        if config.model.tool_parser is not None:
            tool_parser(config.model.tool_parser)
        core.configured, core.incarnation = config, secrets.token_hex(6)
        core.journal.set_config(config, core.incarnation)
        core.step = core.version = 0
        core.fingerprint, core.failure = None, None
        core.evals, core.eval_slots = EvalRounds(config.eval_gate), EvalSlots()
        core.chat_tokenizer = None
        core.open_step()
        core.events.add(
            "configured", incarnation=core.incarnation, changed=[c.key for c in changes]
        )
        core.bell.ring()
        return changes

    async def start(self) -> Status:
        """Boot the engine and begin (or go on with) training; returns when it serves. Starting a running engine is no error.

        Raises:
            StateError: No configuration.
            EngineFailed: The engine did not boot; the state is OFFLINE again and ``status.failure`` says why.
        """
        core = self._core
        if self._starting is None or self._starting.done():
            if core.lifecycle.state is not EngineState.OFFLINE:
                return self.status()
            core.config  # noqa: B018 - raises when there is none
            self._starting = asyncio.create_task(self._start(), name="engine-start")
        starting = self._starting
        await asyncio.wait([starting])
        if starting.cancelled():
            raise EngineFailed("The engine was stopped while it booted.", hint="Start it again.")
        return starting.result()

    async def stop(self) -> Status:
        """End the engine; open episodes are aborted, finished ones of the open step stay. Safe in any state."""
        await self._halt("the engine was stopped")
        return self.status()

    def status(self) -> Status:
        """Return where the run stands."""
        return self._core.status(waiting_for(self._core, self._grants.waiting()))

    async def wait_step(self, after_step: int, wait_s: float) -> Status:
        """Return once ``step > after_step``, or after ``wait_s``; the step of the answer tells which."""
        core = self._core
        end = core.clock.monotonic() + wait_s
        while core.step <= after_step and not self._closed:
            left = end - core.clock.monotonic()
            if left <= 0:
                break
            await core.bell.wait(left)
        return self.status()

    # -- clients and episodes -------------------------------------------------------------------------------

    def register(self, registration: ClientRegistration) -> ClientLease:
        """Begin a client's lease; the same id again is a restart, and its open episodes are aborted."""
        client_id = registration.client_id
        self._endings.lose_client(client_id, f"client {client_id!r} registered again")
        self._core.clients.register(registration)
        return self._lease(client_id)

    def heartbeat(self, client_id: str) -> ClientLease:
        """Renew a lease.

        Raises:
            NotFoundError: Not registered, or the lease ended.
        """
        self._core.clients.heartbeat(client_id)
        return self._lease(client_id)

    async def grant(self, request: GrantRequest, *, base_url: str) -> Grant:
        """Grant an episode or answer WAIT (after at most ``wait_s``) or TRAINING_COMPLETE; see ``Grants.grant``."""
        return await self._grants.grant(request, base_url)

    async def finish(self, episode_id: str, request: FinishRequest) -> FinishReply:
        """End an episode with its reward; see ``Endings.finish``."""
        return self._endings.finish(episode_id, request)

    async def abort(self, episode_id: str, request: AbortRequest) -> FinishReply:
        """End an episode without one; see ``Endings.abort``."""
        return self._endings.abort(episode_id, request)

    def trace(self, episode_id: str, *, calls: bool) -> EpisodeTrace:
        """Return an episode of this or an earlier step, with its calls or only their number.

        Raises:
            NotFoundError: No such episode.
        """
        episode = self._core.book.get(episode_id)
        if episode is not None:
            return episode.trace(calls=calls)
        return self._core.journal.episode(episode_id, calls=calls).trace()

    def pool(self) -> PoolSnapshot:
        """Return what the open step has and needs."""
        return pool_snapshot(self._core)

    def metrics(self, after_step: int) -> list[StepMetrics]:
        """Return the records of steps later than ``after_step``, oldest first."""
        return self._core.journal.step_metrics(after_step) if self._core.configured else []

    async def close_eval_round(self, closing: EvalRoundClose) -> Status:
        """Close the eval round of a step; a gate that waited for it opens. A missed round stays missed."""
        core = self._core
        core.config  # noqa: B018 - raises when there is none
        before = core.evals.outcome(closing.step)
        outcome = core.evals.close(closing)
        if not before:
            core.journal.close_eval_round(
                EvalRound(
                    step=closing.step,
                    planned=closing.planned,
                    completed=closing.completed,
                    missed=False,
                )
            )
        core.events.add(
            "eval_round",
            step=closing.step,
            planned=closing.planned,
            completed=closing.completed,
            outcome=outcome,
        )
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
            EngineFailed: It died in it.
        """
        core = self._core
        serving = (EngineState.ROLLING, EngineState.ROLLING_POST, EngineState.TRAINED)
        core.lifecycle.require(*serving, action="Saving a checkpoint")
        engine = core.engine
        if engine is None:
            raise EngineFailed("There is no engine.", hint="Start it.")
        return await self._checkpoints.save(engine)

    # -- inference ------------------------------------------------------------------------------------------

    def episode_for_key(self, api_key: str) -> Episode:
        """Return the open episode that a key is for.

        Raises:
            AuthError: Not a key of this server, or expired.
            EpisodeGone: Its episode ended or did not survive a restart.
        """
        core = self._core
        episode_id = core.keys.verify(api_key, core.clock.time())
        episode = core.book.get(episode_id)
        if episode is not None and episode.is_open:
            return episode
        why = (episode.missed or episode.reason or episode.state.value) if episode else ""
        if not why:
            with contextlib.suppress(NotFoundError):
                record = core.journal.episode(episode_id, calls=False)
                why = record.reason or record.state.value
        raise EpisodeGone(
            f"Episode {episode_id!r} is over: {why or 'unknown'}.",
            hint="Ask for a new episode.",
            episode_id=episode_id,
        )

    async def chat(self, episode: Episode, call: ChatCall) -> ChatReply:
        """Answer one call; see ``Inference.chat``."""
        return await self._inference.chat(episode, call)

    def chat_stream(self, episode: Episode, call: ChatCall) -> AsyncGenerator[ChatDelta]:
        """Answer one call in pieces; see ``Inference.chat_stream``."""
        return self._inference.chat_stream(episode, call)

    async def close(self) -> None:
        """Stop everything and close the journal. Safe to call twice."""
        if self._closed:
            return
        await self._halt("the server shut down")
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

    async def _start(self) -> Status:
        core = self._core
        async with self._halting:
            pass  # the engine of before has ended now
        core.failure = None
        core.lifecycle.to(EngineState.BOOTING, "start")
        try:
            await self._keeper.boot()
        except Exception as error:
            core.failure = error.message if isinstance(error, SwarmError) else repr(error)
            core.lifecycle.to(EngineState.OFFLINE, core.failure)
            if isinstance(error, SwarmError):
                raise
            raise EngineFailed(
                f"The engine did not boot: {error!r}", hint="See the server's log."
            ) from error
        self._begin(self._pending())
        return self.status()

    def _pending(self) -> CommittedBatch | None:
        """Return the batch that was committed but whose step was never completed."""
        later = self._core.journal.committed_after(self._core.step)
        return later[-1] if later else None

    def _begin(self, pending: CommittedBatch | None) -> None:
        core = self._core
        if pending is not None:
            state = EngineState.WEIGHT_SYNCING
        elif core.step >= core.config.stop_at_step:
            state = EngineState.TRAINED
        else:
            state = EngineState.ROLLING
        core.step_opened = core.clock.monotonic()
        core.evals.enter(core.step, core.step_opened)
        core.lifecycle.to(state, "booted")
        self._tasks["training"] = asyncio.create_task(self._training.run(pending), name="training")
        self._changed()

    def _changed(self) -> None:
        """Something that grants or the step loop wait for may have happened."""
        self._training.check()
        self._grants.pump()

    def _abandon(self, episode: Episode, why: str) -> None:
        self._endings.abort(episode.episode_id, AbortRequest(reason=why))

    def _lease(self, client_id: str) -> ClientLease:
        return ClientLease(
            client_id=client_id, lease_s=self._core.clients.lease_s, status=self.status()
        )

    def _fail(self, why: str) -> None:
        """The run cannot go on: say why and go OFFLINE. Called from the tasks that ``_halt`` ends, so it runs as its own."""
        self._core.failure = why
        self._tasks["halt"] = asyncio.create_task(self._halt(why), name="halt")
        with _whatever_the_journal_says():
            self._core.events.add("failed", why=why, step=self._core.step)

    async def _halt(self, why: str) -> None:
        async with self._halting:
            await self._halt_now(why)

    async def _halt_now(self, why: str) -> None:
        core = self._core
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if core.lifecycle.state is EngineState.OFFLINE:
            return
        self._endings.end_all(why)
        with _whatever_the_journal_says():
            core.lifecycle.to(EngineState.OFFLINE, why)
        await self._cancel("training")
        await self._keeper.close()
        self._grants.pump()

    async def _cancel(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def _whatever_the_journal_says() -> Iterator[None]:
    """Go on when the journal fails: it may be why the server goes OFFLINE, and must not keep it from doing so."""
    try:
        yield
    except JournalFailed as error:
        log.error("Unrecorded: %s", error.message)  # noqa: TRY400 - an expected failure, told in words
