"""The step loop: collect, drain, commit the batch to the journal, move the weights, record, open the next step.

The batch is committed before the engine moves; whatever dies after that, the same rows move the same weights again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from swarm.protocol.errors import EngineFailed, StateError
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EngineState, EpisodeKind, FateReason
from swarm.server.journal.records import CommittedBatch
from swarm.server.ports import TrainBatch, TrainResult
from swarm.server.service import policies
from swarm.server.service.batch import Member, Pictures, StepPlan, plan_step
from swarm.server.service.checkpoints import Checkpoints
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.episodes import Episode
from swarm.server.service.metrics import Ledger, Marks, Timing, step_metrics
from swarm.server.service.policies import Choice
from swarm.server.service.policy_record import policy_fields
from swarm.server.service.recovery import EngineKeeper
from swarm.server.service.staleness import staleness_fields
from swarm.server.tracking.account import rolled_back, with_fates
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Phases:
    """Monotonic seconds at which the phases of a step began."""

    ready: float
    drained: float


@dataclass(slots=True)
class Taken:
    """A committed batch on its way through the engine, with what its step's record needs."""

    batch: TrainBatch
    plan: StepPlan
    ledger: Ledger
    policy: dict[str, Any]
    """Fields of the record that the policy fills."""
    rollout_s: float = 0.0
    front_cpu_s: float = 0.0


class Commit(NamedTuple):
    """A batch that was just committed, and what it was chosen from."""

    batch: TrainBatch
    plan: StepPlan
    choice: Choice
    left: dict[Episode, FateReason]
    """Finished episodes that no step will take."""


class Training:
    """Runs the steps of a run as one task. ``on_failure`` is told when it cannot go on."""

    def __init__(
        self,
        core: Core,
        keeper: EngineKeeper,
        endings: Endings,
        checkpoints: Checkpoints,
        on_step: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._core = core
        self._keeper = keeper
        self._endings = endings
        self._checkpoints = checkpoints
        self._on_step = on_step
        self.at_boundary: Callable[[], None] = lambda: None
        """Called between two steps, before the next one is opened: changes of the configuration are applied here."""
        self._on_failure = on_failure
        self._poke = asyncio.Event()
        self._booked = ("", 0)
        """Incarnation and number of the step whose episodes are in the ledger already."""

    def check(self) -> None:
        """Look at the pool again; call after it changed."""
        core = self._core
        if core.lifecycle.state is EngineState.ROLLING:
            if policies.is_ready(core.pool):
                self._poke.set()
        elif core.lifecycle.state is EngineState.ROLLING_POST:
            core.bell.ring()

    async def run(self, pending: CommittedBatch | None) -> None:
        """Complete ``pending`` (a batch whose update did not happen), then every step up to stop_at_step.

        With a pending batch the engine must be in WEIGHT_SYNCING, else in ROLLING.
        """
        core = self._core
        try:
            if pending is not None:
                await self._complete_pending(pending)
            while core.step < core.config.stop_at_step:
                await self._step()
        except StateError as error:
            if core.lifecycle.state is not EngineState.OFFLINE:
                self._fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server must say that training ended
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("Training ended", exc_info=error)
        self._on_failure(f"step {self._core.step + 1} failed: {type(error).__name__}: {error}")

    async def _step(self) -> None:
        core = self._core
        await self._until_ready()
        hit(Point.STEP_READY)
        ready = core.clock.monotonic()
        core.lifecycle.to(EngineState.ROLLING_POST, "the batch is complete")
        await self._drain()
        commit = self._commit()
        drained = core.clock.monotonic()
        await core.until_state(EngineState.ROLLING_POST)
        core.lifecycle.to(EngineState.WEIGHT_SYNCING, f"step {commit.batch.step}")
        await self._move(commit.batch, commit.plan, _Phases(ready, drained))

    async def _until_ready(self) -> None:
        core = self._core
        while True:
            await core.until_state(EngineState.ROLLING)
            if policies.is_ready(core.pool):
                return
            self._poke.clear()
            await self._poke.wait()

    async def _drain(self) -> None:
        """Wait for open train episodes up to the drain deadline, then go on without the rest.

        Prepared ones have been promised that a commit is taken: they are waited for until it comes or their promise ends.
        """
        core = self._core
        end = core.clock.monotonic() + core.config.batch.drain_deadline_s
        while core.book.open_count(EpisodeKind.TRAIN):
            left = end - core.clock.monotonic()
            if left <= 0:
                break
            await core.bell.wait(left)
        self._endings.leave_behind(
            f"step {core.step + 1} was taken without it: it was granted for policy version "
            f"{core.version}, which ends with that step"
        )
        while core.book.open_count(EpisodeKind.TRAIN):
            await core.bell.wait()

    def _commit(self) -> Commit:
        """Decide what the step consumes and commit it with everything that it leaves out."""
        core = self._core
        bound = policies.bound_reached(core.pool)
        choice = policies.choose(core.pool)
        plan = plan_step(core.config, choice.groups, core.tokenizer.token_bytes, self._pictures)
        plan.consumed.groups_tried = len(core.pool.groups)
        batch = TrainBatch(
            step=core.step + 1,
            policy_version=core.version + 1,
            rows=plan.rows,
            lr=core.config.optimizer.lr,
            kl_coef=core.config.algorithm.kl_coef,
            overlapped=core.config.asynchronous.enabled,
        )
        left = self._left_out(choice)
        dropped = {episode.episode_id: reason.value for episode, reason in left.items()}
        dropped |= {e.episode_id: FateReason.ZERO_ADVANTAGE.value for e in choice.equal}
        again = core.queues.with_again(self._again(choice))
        hit(Point.STEP_BEFORE_COMMIT)
        with core.journal.together():
            core.journal.commit_batch(
                batch,
                episode_ids=[e.episode_id for e in choice.episodes],
                groups=plan.groups,
                dropped=dropped,
                verdicts=plan.verdicts(),
                groups_tried=plan.consumed.groups_tried,
            )
            core.queues.record_places(again)
        hit(Point.STEP_AFTER_COMMIT)
        core.queues.moved(again)
        self._book(choice, plan, left)
        self._booked = (core.incarnation, batch.step)
        core.events.add(
            "batch",
            step=batch.step,
            groups=len(plan.groups),
            rows=len(plan.rows),
            leftovers=len(left),
            groups_tried=plan.consumed.groups_tried,
            bound_reached=bound,
        )
        return Commit(batch, plan, choice, left)

    @property
    def _pictures(self) -> Pictures | None:
        """What rows need of pictures; None: the model reads text only."""
        token = self._core.tokenizer.image_token
        return None if token is None else Pictures(token, self._core.journal.pictures)

    def _left_out(self, choice: Choice) -> dict[Episode, FateReason]:
        """Return the finished episodes that no step will take, with why: all that this one does not take."""
        return dict.fromkeys(choice.leftovers, FateReason.LEFTOVER)

    def _again(self, choice: Choice) -> list[tuple[str, str]]:
        """Return the tasks of shared queues that come again: those of groups that end with the step and gave it nothing.

        While rolling goes on (asynchronous mode) groups go on too.
        """
        if self._core.lifecycle.state is EngineState.ROLLING:
            return []
        return policies.untouched_shared(self._core.pool, choice)

    def _book(self, choice: Choice, plan: StepPlan, left: Mapping[Episode, FateReason]) -> None:
        for episode, reason in left.items():
            self._core.drop(episode, reason)
        self._book_consumed(choice.episodes, plan)
        for episode in choice.equal:
            self._core.mask(episode, FateReason.ZERO_ADVANTAGE)

    def _book_consumed(self, episodes: Sequence[Episode], plan: StepPlan) -> None:
        for episode in episodes:
            fates = plan.fates[episode.episode_id]
            self._core.ledger.book(episode.calls, fates, episode.marks)
            advantages = plan.advantages[episode.episode_id]
            episode.tree.calls = with_fates(episode.calls, fates, advantages)
            episode.consumed_step = self._core.step + 1

    async def _move(self, batch: TrainBatch, plan: StepPlan, phases: _Phases) -> None:
        """Let the engine consume the batch, record the step and open the next one."""
        core = self._core
        while core.in_flight:
            await core.bell.wait()
        hit(Point.STEP_BEFORE_TRAIN)
        result = await self._keeper.use(lambda engine: engine.train(batch)) if batch.rows else None
        timing = Timing(
            rollout_s=phases.ready - core.step_opened,
            drain_s=phases.drained - phases.ready,
            update_s=core.clock.monotonic() - phases.drained,
            front_cpu_s=time.process_time() - core.step_cpu,
            finished_at=core.clock.time(),
        )
        taken = Taken(batch, plan, core.ledger, policy_fields(core, plan.groups))
        self._record(taken, result, timing)
        core.owed = taken.policy["mix_owed"]
        await self._checkpoints.after_step()
        self._next_step()

    def _record(self, taken: Taken, result: TrainResult | None, timing: Timing) -> None:
        """Make the completed update the run's position, in the journal first."""
        core, batch, plan = self._core, taken.batch, taken.plan
        hit(Point.STEP_TRAINED)
        self._check_move(batch, result)
        if result is not None and result.rolled_back:
            self._undo(taken)
        moved = result is not None and result.moved
        version = core.version + moved
        fingerprint = result.fingerprint if result else core.fingerprint
        metrics = step_metrics(
            step=batch.step,
            version=version,
            fingerprint=fingerprint or "",
            consumed=plan.consumed,
            ledger=taken.ledger,
            result=result,
            timing=timing,
            eval_round=core.evals.outcome(batch.step - 1),
            lr=batch.lr,
        )
        shown = core.eval_prompts.fields(plan.consumed.by_group())
        metrics = metrics.model_copy(
            update=taken.policy | staleness_fields(batch, moved=moved) | shown
        )
        core.journal.commit_step(metrics)
        core.clients.contributed(metrics.clients)
        core.traffic.step(metrics.tokens, metrics.divergences)
        hit(Point.STEP_RECORDED)
        core.step, core.version, core.fingerprint = batch.step, version, fingerprint
        self._keeper.step_completed()
        self._announce(metrics)

    def _undo(self, taken: Taken) -> None:
        """Book an update that the engine undid: its tokens are masked, and no trace says that they trained."""
        taken.ledger.roll_back()
        for episode_id in taken.plan.fates:
            episode = self._core.book.get(episode_id)
            if episode is not None:
                episode.tree.calls = rolled_back(episode.calls)

    def _next_step(self) -> None:
        core = self._core
        self.at_boundary()
        core.open_step()
        hit(Point.STEP_OPENED)
        core.evals.enter(core.step, core.step_opened)
        trained = core.step >= core.config.stop_at_step
        core.lifecycle.to(EngineState.TRAINED if trained else EngineState.ROLLING)
        self._on_step()

    def _announce(self, metrics: StepMetrics) -> None:
        core = self._core
        if core.alarms.step_done(metrics, core.config.sampling.divergence_alarm):
            core.events.add(
                "drift", step=metrics.step, divergences=metrics.divergences, calls=metrics.calls
            )
        core.events.add(
            "step",
            step=metrics.step,
            policy_version=metrics.policy_version,
            updated=metrics.updated,
            reward_mean=metrics.reward_mean,
            fingerprint=metrics.fingerprint,
        )
        if metrics.rolled_back:
            core.events.add("rolled_back", step=metrics.step, why=metrics.rolled_back)
        log.info("Step %d done: reward %s", metrics.step, metrics.reward_mean)
        core.bell.ring()

    def _check_move(self, batch: TrainBatch, result: TrainResult | None) -> None:
        """A fingerprint that changes without a move would mean that served weights are not the recorded ones."""
        core = self._core
        if result is None:
            return
        changed = result.fingerprint != core.fingerprint
        if changed and not result.moved:
            raise EngineFailed(
                f"The weights changed in step {batch.step} although the optimizer did not move.",
                hint="This is a fault of the engine: report it.",
            )
        if result.moved and not changed:
            core.events.add("weights_unchanged", step=batch.step, fingerprint=result.fingerprint)

    async def _complete_pending(self, pending: CommittedBatch) -> None:
        """Train a batch that was committed before this engine's time; its numbers come from the journal."""
        core = self._core
        plan = self._plan_again(pending, core.ledger)
        now = core.clock.monotonic()
        await self._move(pending.batch, plan, _Phases(now, now))

    def _plan_again(self, pending: CommittedBatch, ledger: Ledger) -> StepPlan:
        """Return the plan of a batch as it was made, and book it unless that was done before the engine ended."""
        core = self._core
        groups: list[tuple[str, list[Member]]] = [
            (group.group_id, [core.journal.episode(i) for i in group.episode_ids])
            for group in pending.groups
        ]
        plan = plan_step(core.config, groups, core.tokenizer.token_bytes, self._pictures)
        plan.consumed.groups_tried = pending.groups_tried
        if self._booked != (core.incarnation, pending.batch.step):
            for _, members in groups:
                for member in members:
                    details = member.details
                    marks = Marks(details.divergences, details.context_overflows)
                    ledger.book(member.calls, plan.fates[member.episode_id], marks)
        return plan
