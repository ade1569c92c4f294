"""Starts the engine and the step loop, and ends them: by a wish, by a failure, or at the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from swarm.protocol.errors import EngineFailed, SwarmError
from swarm.protocol.states import EngineState
from swarm.server.journal.records import CommittedBatch
from swarm.server.service.configuring import Configuring
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.recovery import EngineKeeper
from swarm.server.service.training import Training


class EngineLife:
    """One engine at a time: starts that come together share one, and a start waits until the engine of before is gone.

    ``changed`` is called when what grants and the step loop wait for may have happened.
    """

    def __init__(
        self,
        core: Core,
        keeper: EngineKeeper,
        endings: Endings,
        training: Training,
        configuring: Configuring,
        changed: Callable[[], None],
    ) -> None:
        self._core = core
        self._keeper = keeper
        self._endings = endings
        self._training = training
        self._configuring = configuring
        self._changed = changed
        self._steps: asyncio.Task[None] | None = None
        self._halt: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._halting = asyncio.Lock()
        """Held while an engine is being ended."""
        keeper.on_up = self.go_on
        keeper.on_lost = self.fail

    async def start(self) -> None:
        """Boot the engine and begin (or go on with) training; returns when it serves. Starting a running engine is no error.

        Raises:
            StateError: No configuration.
            EngineFailed: The engine did not boot; the state is OFFLINE again and ``core.failure`` says why.
        """
        core = self._core
        if self._starting is None or self._starting.done():
            if core.lifecycle.state is not EngineState.OFFLINE:
                return
            core.config  # noqa: B018 - raises when there is none
            self._starting = asyncio.create_task(self._start(), name="engine-start")
        starting = self._starting
        await asyncio.wait([starting])
        if starting.cancelled():
            raise EngineFailed("The engine was stopped while it booted.", hint="Start it again.")
        starting.result()

    async def stop(self, why: str) -> None:
        """End the engine; open episodes are aborted, finished ones of the open step stay. Safe in any state."""
        async with self._halting:
            await self._stop_now(why)

    def go_on(self) -> None:
        """Take up training again where nothing but the last step was in its way; call when that may have changed.

        The engine came back, or ``stop_at_step`` was raised.
        """
        core = self._core
        if (
            core.lifecycle.state is EngineState.TRAINED
            and core.step < core.config.stop_at_step
            and (self._steps is None or self._steps.done())
        ):
            # The step is open already, under the new configuration: what was evaluated meanwhile is in its account.
            core.step_opened = core.clock.monotonic()
            core.evals.enter(core.step, core.step_opened)
            core.lifecycle.to(EngineState.ROLLING, "stop_at_step was raised")
            self._run_steps(None)
        self._changed()

    def fail(self, why: str) -> None:
        """The run cannot go on: say why and go OFFLINE. Called from the tasks that ``stop`` ends, so it runs as its own."""
        self._core.failure = why
        self._halt = asyncio.create_task(self.stop(why), name="halt")
        self._core.events.try_add("failed", why=why, step=self._core.step)

    # -- inside ---------------------------------------------------------------------------------------------

    async def _start(self) -> None:
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

    def _pending(self) -> CommittedBatch | None:
        """Return the batch that was committed but whose step was never completed."""
        later = self._core.journal.committed_after(self._core.trained_step)
        return later[-1] if later else None

    def _begin(self, pending: CommittedBatch | None) -> None:
        core = self._core
        if core.pool.step != core.step:  # it was stopped between two steps
            self._configuring.apply_pending()
            core.open_step()
        if pending is not None:
            state = EngineState.WEIGHT_SYNCING
        elif core.step >= core.config.stop_at_step:
            state = EngineState.TRAINED
        else:
            state = EngineState.ROLLING
        core.step_opened = core.clock.monotonic()
        core.evals.enter(core.step, core.step_opened)
        core.consent.serving()
        core.lifecycle.to(state, "booted")
        self._run_steps(pending)
        self._changed()

    def _run_steps(self, pending: CommittedBatch | None) -> None:
        self._steps = asyncio.create_task(self._training.run(pending), name="training")

    async def _stop_now(self, why: str) -> None:
        core = self._core
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if core.lifecycle.state is EngineState.OFFLINE:
            return
        self._endings.end_all(why)
        core.lifecycle.to(EngineState.OFFLINE, why)
        if self._steps is not None:
            self._steps.cancel()
            await asyncio.gather(self._steps, return_exceptions=True)
        await self._keeper.close()
        self._changed()
