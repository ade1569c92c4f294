"""What the parts of the service share: the run's position and its collaborators. Holds state, decides nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import StateError
from swarm.protocol.messages import PolicyVersion, Status
from swarm.protocol.states import EngineState, EpisodeKind, FateReason
from swarm.server.journal.journal import Journal
from swarm.server.keys import EpisodeKeys, Tokens
from swarm.server.ports import Engine, EngineInfo
from swarm.server.service.alarms import Alarms
from swarm.server.service.client_notes import ClientNotes
from swarm.server.service.clients import Clients
from swarm.server.service.clock import Bell, Clock
from swarm.server.service.consent import Consent
from swarm.server.service.controller import Controller
from swarm.server.service.episodes import Episode, EpisodeBook
from swarm.server.service.evals import EvalRounds, EvalSlots
from swarm.server.service.events import EventLog
from swarm.server.service.groups import Pool
from swarm.server.service.guarding.overlap import EvalPrompts
from swarm.server.service.lifecycle import SERVES_EVALS, Lifecycle
from swarm.server.service.metrics import Ledger, guard_findings, guarded_tokens
from swarm.server.service.recent import RecentErrors
from swarm.server.service.task_queue import TaskQueues
from swarm.server.service.traffic import Traffic
from swarm.server.tracking.account import Fate, dropped, masked, whole_episode, with_fates
from swarm.server.tracking.tokenizer import ChatTokenizer

EngineFactory = Callable[[str], Engine]
EPISODE_DROPPED = "episode_dropped"
GROUP_DROPPED = "group_dropped"
SEAT_FORGONE = "seat_forgone"
VERSION = metadata.version("a3r")


class Core:
    """Shared state of one server process. Fields of the run are set by ``configure`` or by resuming."""

    def __init__(
        self,
        *,
        state_dir: Path,
        engine_factory: EngineFactory,
        clock: Clock,
        tokens: Tokens,
        journal: Journal,
        lease_s: float,
    ) -> None:
        self.state_dir = state_dir
        self.engine_factory = engine_factory
        self.clock = clock
        self.journal = journal
        self.keys = EpisodeKeys(tokens.signing)
        self.server_id = tokens.server_id
        self.bell = Bell(clock)
        """Rings when the state, the step or an episode that has calls waiting changed."""
        self.lifecycle = Lifecycle(self._moved)
        self.events = EventLog(clock, journal)
        self.book = EpisodeBook()
        self.clients = Clients(clock, lease_s)
        self.client_notes = ClientNotes(journal)
        self.controller = Controller(clock, lease_s)
        self.consent = Consent(self.clients, clock)
        self.queues = TaskQueues(journal)
        self.alarms = Alarms()
        self.eval_slots = EvalSlots()
        self.eval_prompts = EvalPrompts()
        self.configured: TrainConfig | None = None
        self.incarnation = ""
        self.step = 0
        """The open step: what is granted now is collected for it."""
        self.ahead = 0
        """1 while the update of the step before the open one runs or waits (asynchronous mode), else 0."""
        self.version = 0
        self.fingerprint: str | None = None
        self.failure: str | None = None
        self.restarts = 0
        self.engine: Engine | None = None
        self.info: EngineInfo | None = None
        self.newest_checkpoint = ""
        """Folder of the one saved last."""
        self.chat_tokenizer: ChatTokenizer | None = None
        self.pool = Pool(0, TrainConfig().batch)
        self.owed: dict[str, float] = {}
        """What earlier steps left open of the task mix (``quotas``)."""
        self.evals = EvalRounds(TrainConfig().eval_gate)
        self.step_opened = clock.monotonic()
        self.step_cpu = time.process_time()
        self.in_flight = 0
        """Calls inside the engine now."""
        self.ledger = Ledger()
        self.traffic = Traffic(clock)
        self.recent = RecentErrors(clock)
        self.events.on_event = self.recent.see
        self.alarms.on_raised = lambda text: self.recent.note("warning", text)
        journal.tell_failures(lambda why: self.recent.note("journal_failed", why))

    @property
    def config(self) -> TrainConfig:
        """The configuration.

        Raises:
            StateError: None was given yet.
        """
        if self.configured is None:
            raise StateError(
                "The server has no configuration.",
                hint="PUT /swarm/config first (swarm configure), then start the engine.",
            )
        return self.configured

    @property
    def image_tokens(self) -> int:
        """Most tokens that a picture takes in the context of the served model; 0 = it reads text only."""
        if self.info is None or self.chat_tokenizer is None:
            return 0
        return self.info.image_tokens if self.chat_tokenizer.image_token is not None else 0

    @property
    def tokenizer(self) -> ChatTokenizer:
        """The tokenizer of the configured model, loaded at boot."""
        if self.chat_tokenizer is None:
            raise StateError("No model is loaded.", hint="Start the engine first.")
        return self.chat_tokenizer

    @property
    def policy_version(self) -> PolicyVersion | None:
        """Incarnation and number of moves; None before a configuration."""
        if self.configured is None:
            return None
        return PolicyVersion(incarnation=self.incarnation, n=self.version)

    @property
    def trained_step(self) -> int:
        """Steps whose update is complete: what the served weights are, and what ``Status.step`` says."""
        return self.step - self.ahead

    def step_for(self, kind: EpisodeKind) -> int:
        """Return the step that an episode of this kind is of: training collects for the open one, evaluation is about the weights."""
        return self.trained_step if kind is EpisodeKind.EVAL else self.step

    def open_step(self, forget_before: int | None = None) -> None:
        """Begin collecting for the current step with an empty pool.

        Ended episodes that were granted before step ``forget_before`` are forgotten; None = before the last step.
        """
        self.consent.open(self.incarnation, self.step)
        self.pool = self.empty_pool()
        self.step_opened = self.clock.monotonic()
        self.step_cpu = time.process_time()
        self.ledger = Ledger()
        self.book.forget_ended_before(self.step - 1 if forget_before is None else forget_before)

    def empty_pool(self) -> Pool:
        """Return a pool for the current step under the configuration in force."""
        pool = Pool(self.step, self.config.batch, self.owed)
        pool.consent = lambda: self.consent.given(pool.batch.policy)
        return pool

    def drop(self, episode: Episode, reason: FateReason) -> None:
        """Book a train episode that no batch will take, with all that was sampled for it."""
        self._leave_out(episode, reason, whole_episode(episode.calls, dropped(reason)))

    def mask(self, episode: Episode, reason: FateReason) -> None:
        """Book a complete train episode that cannot train, with all that was sampled for it."""
        fates = whole_episode(episode.calls, masked(reason), episode.details.agents)
        self._leave_out(episode, reason, fates)

    def _leave_out(self, episode: Episode, reason: FateReason, fates: list[Fate]) -> None:
        calls, marks = episode.calls, episode.marks
        account = self.ledger.leave_out(calls, fates, marks, reason)
        episode.tree.calls = with_fates(calls, fates)
        episode.dropped = reason.value
        self.events.try_add(  # its end is recorded: whatever else fails, its seat must not stay taken
            EPISODE_DROPPED,
            incarnation=self.incarnation,
            step=self.step,
            episode_id=episode.episode_id,
            group_id=episode.group_id,
            reason=reason.value,
            why=episode.missed or episode.reason,
            tokens=account.counts,
            agents=account.by_agent,
            calls=len(calls),
            guarded=guarded_tokens(calls),
            guard=guard_findings(calls),
            **marks._asdict(),
        )

    def status(self, waiting_for: str) -> Status:
        """Return the wire form of where the run stands."""
        config = self.configured
        return Status(
            state=self.lifecycle.state,
            step=self.trained_step,
            policy_version=self.policy_version,
            stop_at_step=config.stop_at_step if config else None,
            model=config.model.path if config else None,
            fingerprint=self.fingerprint,
            waiting_for=waiting_for,
            failure=self.failure,
            engine_restarts=self.restarts,
            open_episodes=self.book.open_count(),
            pid=os.getpid(),
            version=VERSION,
            server_id=self.server_id,
            controller=self.controller.holder,
            warnings=self._warnings(),
            updating=self.ahead > 0,
        )

    def _warnings(self) -> list[str]:
        texts = self.alarms.texts()
        if self.journal.failing:
            texts.insert(0, f"Nothing can be recorded: {self.journal.failing}.")
        missed = self.evals.last_missed
        if missed is not None:
            texts.append(f"The evaluation of step {missed} was missed: its gate opened by itself.")
        return texts

    async def until_state(self, *wanted: EngineState) -> None:
        """Wait until the engine is in one of ``wanted``.

        Raises:
            StateError: It went OFFLINE instead.
        """
        while self.lifecycle.state not in wanted:
            if self.lifecycle.state is EngineState.OFFLINE:
                raise StateError("The engine went OFFLINE.", hint=self.failure or "It was stopped.")
            await self.bell.wait()

    def _moved(self, old: EngineState, new: EngineState, why: str) -> None:
        now = self.clock.monotonic()
        if new in SERVES_EVALS and new is not EngineState.TRAINED:
            self.evals.run(now)
        else:
            self.evals.pause(now)
        # The state has moved: a journal that cannot take the news must not stop whoever moved it half-way.
        self.events.try_add("state", old=old.value, new=new.value, why=why, step=self.step)
        self.bell.ring()
