"""The step loop of asynchronous mode: rolling goes on while the weights move, within a bound of staleness.

A batch is taken as in the synchronous loop. Its step ends there and the next one opens at once, with whatever of the pool may
still train; the update runs beside it. One update runs at a time, so the open step is at most one ahead of the weights. The last
step has nothing to roll for and is taken like a synchronous one.
"""

from __future__ import annotations

import time

from swarm.protocol.states import EngineState, EpisodeKind, FateReason
from swarm.server.journal.records import CommittedBatch
from swarm.server.ports import TrainResult
from swarm.server.service.carrying import carry, rests, torn
from swarm.server.service.core import SEAT_FORGONE
from swarm.server.service.episodes import Episode
from swarm.server.service.metrics import Timing
from swarm.server.service.pending import ledger_of, policy_of
from swarm.server.service.policies import Choice
from swarm.server.service.policy_record import policy_fields
from swarm.server.service.staleness import is_stale
from swarm.server.service.training import Commit, Taken, Training
from swarm.triggers import Point, hit


class AsyncTraining(Training):
    """``Training`` that overlaps when ``asynchronous.enabled``; otherwise it is the synchronous loop, unchanged."""

    _taken: Taken | None = None
    """The batch whose update runs; kept when the engine is stopped in the middle of it."""

    async def _step(self) -> None:
        config = self._core.config
        if not config.asynchronous.enabled or self._core.step + 1 >= config.stop_at_step:
            await super()._step()
            return
        await self._until_ready()
        hit(Point.STEP_READY)
        self._taken = self._take()
        await self._overlap(self._taken)

    async def _until_ready(self) -> None:
        """Wait for a batch whose every token is young enough; an evaluation that holds grants holds the weights too."""
        core = self._core
        while True:
            await super()._until_ready()
            if not core.config.asynchronous.enabled:
                return
            if core.evals.holds(core.step):
                self._poke.clear()
                await self._poke.wait()
            elif not self._sweep():
                return

    # -- taking a batch ---------------------------------------------------------------------------------------

    def _take(self) -> Taken:
        """Commit a batch, end its step and open the next one with what goes on in it."""
        core = self._core
        rollout_s = core.clock.monotonic() - core.step_opened
        commit = self._commit()
        taken = Taken(
            batch=commit.batch,
            plan=commit.plan,
            ledger=core.ledger,
            policy=policy_fields(core, commit.plan.groups),
            rollout_s=rollout_s,
            front_cpu_s=time.process_time() - core.step_cpu,
        )
        consumed = {*commit.choice.episodes, *commit.choice.equal}
        self._end_open(commit, consumed)
        old = core.pool
        core.step, core.ahead, core.owed = commit.batch.step, 1, taken.policy["mix_owed"]
        self.at_boundary()
        needed = [*consumed, *(e for _, left in rests(old, commit.left) for e in left)]
        core.open_step(min([core.step - 1, *(e.step for e in needed)]))
        carry(old, core.pool, consumed=consumed, dropped=commit.left)
        for group in core.pool.groups.values():
            for _ in range(group.forgone):  # a resumed server reads the open step's events only
                self._endings.group_event(SEAT_FORGONE, group)
        hit(Point.STEP_OPENED)
        core.bell.ring()
        self._on_step()
        return taken

    def _left_out(self, choice: Choice) -> dict[Episode, FateReason]:
        """What is not taken goes on, unless it would be too old for the next update, or alone."""
        core = self._core
        if core.lifecycle.state is not EngineState.ROLLING:  # the last step
            return super()._left_out(choice)
        bound, version = core.config.asynchronous.max_staleness, core.version + bool(choice.groups)
        left = {
            episode: FateReason.STALE
            for episode in choice.leftovers
            if is_stale(episode.calls, version, bound)
        }
        alone = torn(core.pool, {*choice.episodes, *choice.equal})
        return left | {e: FateReason.LEFTOVER for e in alone if not e.is_open and e not in left}

    def _end_open(self, commit: Commit, consumed: set[Episode]) -> None:
        """End the open episodes that cannot train any more, and give back the shared tasks of groups that nobody is left of."""
        core, batch = self._core, commit.batch
        late = self._stale(core.version + bool(batch.rows), core.book.open(EpisodeKind.TRAIN))
        self._endings.outdate(late, self._why_stale(core.version + bool(batch.rows)))
        alone = [e for e in torn(core.pool, consumed, commit.left) if e.is_open]
        why = (
            f"step {batch.step} took the rest of its group and left it nothing to be compared with"
        )
        self._endings.leave_behind(why, only=alone)
        touched = {e.group_id for e in consumed}
        going_on = {group.group_id for group, _ in rests(core.pool, commit.left)}
        core.queues.put_back(
            (group.task_set, group.task_id)
            for group in core.pool.alive()
            if group.shared and group.group_id not in touched | going_on
        )

    # -- the update -------------------------------------------------------------------------------------------

    async def _overlap(self, taken: Taken) -> None:
        """Let the engine consume the batch beside its sampling, and record the step."""
        core = self._core
        began = core.clock.monotonic()
        async with self._checkpoints.standing_still:
            hit(Point.STEP_BEFORE_TRAIN)
            result = await self._moved(taken, EngineState.ROLLING)
            self._land(taken, result, update_s=core.clock.monotonic() - began)
        core.evals.enter(core.step, core.clock.monotonic())
        self._sweep()
        self._on_step()
        await self._checkpoints.after_step()
        self._on_step()

    async def _moved(self, taken: Taken, during: EngineState) -> TrainResult | None:
        if not taken.batch.rows:
            return None
        return await self._keeper.use(lambda engine: engine.train(taken.batch), during=during)

    def _land(self, taken: Taken, result: TrainResult | None, *, update_s: float) -> None:
        """The weights have caught up with the open step."""
        timing = Timing(
            rollout_s=taken.rollout_s,
            drain_s=0.0,
            update_s=update_s,
            front_cpu_s=taken.front_cpu_s,
            finished_at=self._core.clock.time(),
        )
        self._record(taken, result, timing)
        self._core.ahead, self._taken = 0, None

    async def _complete_pending(self, pending: CommittedBatch) -> None:
        """Train a batch whose update did not happen; the step after it is open already and keeps its pool."""
        core = self._core
        if not core.ahead:
            await super()._complete_pending(pending)
            return
        taken = self._taken
        if taken is None or self._booked != (core.incarnation, pending.batch.step):
            ledger = ledger_of(core, pending)
            plan = self._plan_again(pending, ledger)
            taken = Taken(pending.batch, plan, ledger, policy_of(core, pending))
        began = core.clock.monotonic()
        result = await self._moved(taken, EngineState.WEIGHT_SYNCING)
        self._land(taken, result, update_s=core.clock.monotonic() - began)
        await self._checkpoints.after_step()
        core.evals.enter(core.step, core.clock.monotonic())
        self._sweep()
        trained = core.step >= core.config.stop_at_step
        core.lifecycle.to(EngineState.TRAINED if trained else EngineState.ROLLING)
        self._on_step()

    # -- staleness --------------------------------------------------------------------------------------------

    def _sweep(self) -> bool:
        """Take out what no update may use any more; True when there was something. Its seats are wanted again."""
        core = self._core
        members = [*core.book.open(EpisodeKind.TRAIN), *core.pool.finish_order]
        stale = self._stale(core.version, members)
        self._endings.outdate(stale, self._why_stale(core.version))
        if stale:
            self._on_step()
        return bool(stale)

    def _stale(self, version: int, episodes: list[Episode]) -> list[Episode]:
        """Return those too old for ``version``; prepared ones have a promise, and are judged when it is kept."""
        bound = self._core.config.asynchronous.max_staleness
        return [e for e in episodes if not e.prepared and is_stale(e.calls, version, bound)]

    def _why_stale(self, version: int) -> str:
        bound = self._core.config.asynchronous.max_staleness
        return (
            f"it holds tokens sampled more than {bound} policy versions before {version}, which the next update starts from; "
            f"asynchronous.max_staleness is {bound}"
        )
