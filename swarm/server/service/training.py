"""The step loop: collect, drain, commit the batch to the journal, move the weights, record, open the next step.

The batch is committed before the engine moves; whatever dies after that, the same rows move the same weights again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.protocol.errors import EngineFailed, StateError
from swarm.protocol.messages import StepMetrics
from swarm.protocol.states import EngineState, EpisodeKind, FateReason
from swarm.server.journal.records import CommittedBatch
from swarm.server.ports import TrainBatch, TrainResult
from swarm.server.service import policies
from swarm.server.service.batch import Member, StepPlan, plan_step
from swarm.server.service.checkpoints import Checkpoints
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.episodes import Episode
from swarm.server.service.metrics import Timing, step_metrics
from swarm.server.service.policies import Choice
from swarm.server.service.recovery import EngineKeeper
from swarm.server.tracking.account import with_fates

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Phases:
    """Monotonic seconds at which the phases of a step began."""

    ready: float
    drained: float


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
        ready = core.clock.monotonic()
        core.lifecycle.to(EngineState.ROLLING_POST, "the batch is complete")
        await self._drain()
        batch, plan = self._commit()
        drained = core.clock.monotonic()
        await core.until_state(EngineState.ROLLING_POST)
        core.lifecycle.to(EngineState.WEIGHT_SYNCING, f"step {batch.step}")
        await self._move(batch, plan, _Phases(ready, drained))

    async def _until_ready(self) -> None:
        core = self._core
        while True:
            await core.until_state(EngineState.ROLLING)
            if policies.is_ready(core.pool):
                return
            self._poke.clear()
            await self._poke.wait()

    async def _drain(self) -> None:
        """Wait for open train episodes up to the drain deadline, then go on without the rest."""
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

    def _commit(self) -> tuple[TrainBatch, StepPlan]:
        """Decide what the step consumes and commit it with everything that it leaves out."""
        core = self._core
        bound = policies.bound_reached(core.pool)
        choice = policies.choose(core.pool)
        plan = plan_step(core.config, choice.groups, core.tokenizer.token_bytes)
        batch = TrainBatch(step=core.step + 1, policy_version=core.version + 1, rows=plan.rows)
        dropped = {e.episode_id: FateReason.LEFTOVER.value for e in choice.leftovers}
        dropped |= {e.episode_id: FateReason.ZERO_ADVANTAGE.value for e in choice.equal}
        core.journal.commit_batch(
            batch,
            episode_ids=[e.episode_id for e in choice.episodes],
            groups=plan.groups,
            dropped=dropped,
        )
        self._book(choice, plan)
        self._booked = (core.incarnation, batch.step)
        core.events.add(
            "batch",
            step=batch.step,
            groups=len(plan.groups),
            rows=len(plan.rows),
            leftovers=len(choice.leftovers),
            groups_tried=len(core.pool.groups),
            bound_reached=bound,
        )
        return batch, plan

    def _book(self, choice: Choice, plan: StepPlan) -> None:
        for episode in choice.leftovers:
            self._core.drop(episode, FateReason.LEFTOVER)
        self._book_consumed(choice.episodes, plan)
        for episode in choice.equal:
            self._core.mask(episode, FateReason.ZERO_ADVANTAGE)

    def _book_consumed(self, episodes: Sequence[Episode], plan: StepPlan) -> None:
        for episode in episodes:
            fates = plan.fates[episode.episode_id]
            self._core.ledger.book(episode.calls, fates, episode.tree.divergences)
            episode.tree.calls = with_fates(episode.calls, fates)

    async def _move(self, batch: TrainBatch, plan: StepPlan, phases: _Phases) -> None:
        """Let the engine consume the batch, record the step and open the next one."""
        core = self._core
        while core.in_flight:
            await core.bell.wait()
        result = await self._keeper.use(lambda engine: engine.train(batch)) if batch.rows else None
        self._check_move(batch, result)
        moved = result is not None and result.moved
        version = core.version + moved
        fingerprint = result.fingerprint if result else core.fingerprint
        now = core.clock.monotonic()
        metrics = step_metrics(
            step=batch.step,
            version=version,
            fingerprint=fingerprint or "",
            consumed=plan.consumed,
            ledger=core.ledger,
            result=result,
            timing=Timing(
                rollout_s=phases.ready - core.step_opened,
                drain_s=phases.drained - phases.ready,
                update_s=now - phases.drained,
                front_cpu_s=time.process_time() - core.step_cpu,
                finished_at=core.clock.time(),
            ),
            eval_round=core.evals.outcome(core.step),
        )
        core.journal.commit_step(metrics)
        core.step, core.version, core.fingerprint = batch.step, version, fingerprint
        self._keeper.step_completed()
        self._announce(metrics)
        await self._checkpoints.after_step()
        self._next_step()

    def _next_step(self) -> None:
        core = self._core
        core.open_step()
        core.evals.enter(core.step, core.step_opened)
        trained = core.step >= core.config.stop_at_step
        core.lifecycle.to(EngineState.TRAINED if trained else EngineState.ROLLING)
        self._on_step()

    def _announce(self, metrics: StepMetrics) -> None:
        core = self._core
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
        groups: list[tuple[str, list[Member]]] = [
            (group.group_id, [core.journal.episode(i) for i in group.episode_ids])
            for group in pending.groups
        ]
        plan = plan_step(core.config, groups, core.tokenizer.token_bytes)
        if self._booked != (core.incarnation, pending.batch.step):
            for _, members in groups:
                for member in members:
                    core.ledger.book(member.calls, plan.fates[member.episode_id], 0)
        now = core.clock.monotonic()
        await self._move(pending.batch, plan, _Phases(now, now))
