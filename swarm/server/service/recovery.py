"""Keeps an engine alive: boots it, replays what the checkpoint lacks, and boots another one when it dies.

Replay proves itself: after each replayed batch, and at its end, the fingerprint must be the one that the journal recorded.
If it is not, the server goes OFFLINE and says so; it never serves weights that it cannot account for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from swarm.protocol.errors import EngineFailed
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.states import EngineState
from swarm.server.journal.records import CommittedBatch
from swarm.server.model_files import resolve_model
from swarm.server.ports import Engine, TrainBatch
from swarm.server.service.checkpoint_folders import mend
from swarm.server.service.core import Core
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)

RESTARTS_PER_STEP = 5
"""Restarts without a completed step in between; the next death is final."""
ResultT = TypeVar("ResultT")


class ReplayMismatch(EngineFailed):
    """Replaying the journal gave other weights than it recorded."""

    code = "replay_mismatch"


class EngineKeeper:
    """Owns the engine process of the run. ``on_up`` runs after a recovery, ``on_lost`` when there will be none."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._recovery: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._since_step = 0
        self.on_up: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda _why: None

    async def boot(self) -> None:
        """Boot an engine and replay; the state must be BOOTING and stays so.

        Raises:
            EngineFailed: It did not come up; ``ReplayMismatch`` when it came up with other weights. It is closed then.
        """
        core = self._core
        if core.chat_tokenizer is None:
            core.chat_tokenizer = ChatTokenizer.from_folder(resolve_model(core.config.model.path))
        engine = core.engine_factory(core.config.engine)
        try:
            await self._boot_and_replay(engine)
        except BaseException:
            await engine.close()
            raise
        core.engine = engine
        self._watch = asyncio.create_task(self._await_death(engine), name="engine-watch")

    async def use(
        self,
        action: Callable[[Engine], Awaitable[ResultT]],
        *,
        during: EngineState = EngineState.WEIGHT_SYNCING,
    ) -> ResultT:
        """Run ``action`` on the engine in the state ``during``; when the engine dies in it, recover and run it again.

        Raises:
            StateError: The engine could not be brought back, or was stopped.
        """
        while True:
            await self._core.until_state(during)
            engine = self._core.engine
            if engine is None:
                raise EngineFailed("There is no engine.", hint="Start it.")
            try:
                return await action(engine)
            except EngineFailed as error:
                await self.recovered(engine, error)

    async def recovered(self, engine: Engine, error: EngineFailed) -> None:
        """Report that ``engine`` failed and wait until another one serves, or none will."""
        self._lost(engine, error.message)
        if self._recovery is not None:
            await asyncio.wait(
                [self._recovery]
            )  # not awaited itself: its cancellation is not the caller's

    def step_completed(self) -> None:
        """Note progress: the restart budget is full again."""
        self._since_step = 0

    async def close(self) -> None:
        """End the engine and everything that watches it. Safe to call twice."""
        for task in (self._recovery, self._watch):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._recovery = self._watch = None
        engine, self._core.engine = self._core.engine, None
        if engine is not None:
            await engine.close()

    async def _boot_and_replay(self, engine: Engine) -> None:
        core = self._core
        checkpoint, batches = self._plan()
        hit(Point.BOOT_BEFORE_ENGINE)
        info = await engine.boot(core.config, checkpoint=checkpoint.path if checkpoint else None)
        fingerprint = info.fingerprint
        if checkpoint is not None:
            _same(fingerprint, checkpoint.fingerprint, f"the checkpoint of step {checkpoint.step}")
        for committed, expected in batches:
            if committed.batch.rows:
                result = await engine.train(committed.batch)
                fingerprint = result.fingerprint
            _same(fingerprint, expected, f"the replay of step {committed.batch.step}")
            hit(Point.BOOT_REPLAYED)
        # Also when there was nothing to replay: a checkpoint may be gone, and its batches with it.
        if core.trained_step:
            recorded = core.journal.step_metrics(core.trained_step - 1)[0].fingerprint
            _same(fingerprint, recorded, f"loading step {core.trained_step}")
        hit(Point.BOOT_DONE)
        core.info, core.fingerprint = info, fingerprint
        if batches:
            core.events.try_add("replayed", steps=[c.batch.step for c, _ in batches])

    def _plan(self) -> tuple[CheckpointInfo | None, list[tuple[CommittedBatch, str]]]:
        """Return where to boot from, and what to replay with the fingerprint expected after each batch."""
        core = self._core
        step = core.trained_step
        kept = [c for c in core.journal.checkpoints() if c.step <= step and mend(Path(c.path))]
        checkpoint = kept[-1] if kept else None
        after = checkpoint.step if checkpoint else 0
        expected = {m.step: m.fingerprint for m in core.journal.step_metrics(after)}
        committed = core.journal.committed_after(after)
        done = [(c, expected[c.batch.step]) for c in committed if c.batch.step <= step]
        for batch in (c.batch for c, _ in done):
            self._complete(batch)
        core.newest_checkpoint = checkpoint.path if checkpoint else ""
        return checkpoint, done

    def _complete(self, batch: TrainBatch) -> None:
        """Give a batch of an older journal, which lacks them, the rates under which it was trained."""
        if batch.lr is None:
            config = self._core.journal.config_at(batch.step - 1) or self._core.config
            batch.lr, batch.kl_coef = config.optimizer.lr, config.algorithm.kl_coef

    async def _await_death(self, engine: Engine) -> None:
        reason = await engine.died()
        self._lost(engine, reason)

    def _lost(self, engine: Engine, reason: str) -> None:
        """Begin a recovery, unless one runs or the engine is not the current one."""
        core = self._core
        if core.engine is not engine or core.lifecycle.state is EngineState.OFFLINE:
            return
        if self._recovery is None or self._recovery.done():
            log.warning("The engine died: %s", reason)
            resume_to = core.lifecycle.state
            core.failure = reason
            core.lifecycle.to(EngineState.BOOTING, reason)
            self._recovery = asyncio.create_task(
                self._recover(engine, reason, resume_to), name="engine-recovery"
            )

    async def _recover(self, dead: Engine, reason: str, resume_to: EngineState) -> None:
        core = self._core
        hit(Point.ENGINE_LOST)
        core.engine = None
        if self._watch is not None:
            self._watch.cancel()
        await dead.close()
        while True:
            if self._since_step >= RESTARTS_PER_STEP:
                self.on_lost(
                    f"the engine died {self._since_step + 1} times without completing a step: {reason}"
                )
                return
            self._since_step += 1
            core.restarts += 1
            core.events.try_add("engine_restart", reason=reason, attempt=self._since_step)
            try:
                await self.boot()
            except ReplayMismatch as error:
                self.on_lost(error.message)
                return
            except EngineFailed as error:
                reason = core.failure = error.message
                continue
            except Exception as error:
                log.exception("The engine cannot be brought back")
                self.on_lost(f"the engine cannot be brought back: {error!r}")
                return
            core.lifecycle.to(resume_to, "recovered")
            self.on_up()
            return


def _same(found: str, expected: str, after: str) -> None:
    if found != expected:
        raise ReplayMismatch(
            f"After {after} the weights have fingerprint {found!r}, but the journal recorded {expected!r}.",
            hint="The model folder, a checkpoint or the hardware's arithmetic changed, or a checkpoint is gone: put it back, or start a fresh run.",
        )
