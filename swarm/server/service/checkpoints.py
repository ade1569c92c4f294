"""When weights are saved, where, and which saved ones are kept."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from swarm.protocol.errors import CheckpointFailed, EngineFailed, JournalFailed
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.states import EngineState
from swarm.server.model_files import BUILTIN_PREFIX
from swarm.server.ports import Engine
from swarm.server.service.checkpoint_folders import folder_name, sweep
from swarm.server.service.core import Core
from swarm.server.service.recovery import EngineKeeper
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves through the engine, records in the journal, deletes what is not kept."""

    def __init__(self, core: Core, keeper: EngineKeeper) -> None:
        self._core = core
        self._keeper = keeper
        self._owed = False
        """The last one could not be written."""
        self.standing_still = asyncio.Lock()
        """Held by who saves, and by an update that overlaps: weights are saved between updates only."""

    async def after_step(self) -> None:
        """Save when the completed step asks for it, or the last save failed; call in WEIGHT_SYNCING.

        The state is WEIGHT_EXPORTING meanwhile and stays so; in asynchronous mode it is ROLLING and calls go on. An engine that
        dies in it is recovered; a checkpoint that cannot be written (a full disk) is a warning, and the next step tries again:
        the journal replays what it lacks.
        """
        core = self._core
        every, last = core.config.checkpoint.every_steps, core.config.stop_at_step
        step, during = core.trained_step, core.lifecycle.state
        if not (self._owed or step % every == 0 or step >= last):
            return
        if during is not EngineState.ROLLING:
            during = EngineState.WEIGHT_EXPORTING
            core.lifecycle.to(during, f"checkpoint of step {step}")
        try:
            async with self.standing_still:
                await self._keeper.use(self._save, during=during)
        except (CheckpointFailed, JournalFailed) as error:
            log.error("Step %d goes on without its checkpoint: %s", step, error)  # noqa: TRY400

    async def save_now(self) -> CheckpointInfo:
        """Save the current weights because somebody asked for it.

        Raises:
            StateError: The engine does not serve, or its weights are moving.
            CheckpointFailed: It could not be written; the warning says so until one is. What was there stays.
            EngineFailed: The engine died, or saved other weights than it serves; nothing is recorded then.
            JournalFailed: It was written and not recorded.
        """
        core = self._core
        self._require_serving()
        async with self.standing_still:
            self._require_serving()  # another save may have taken long
            if core.engine is None:
                raise EngineFailed("There is no engine.", hint="Start it.")
            return await self._save(core.engine)

    def _require_serving(self) -> None:
        serving = (EngineState.ROLLING, EngineState.ROLLING_POST, EngineState.TRAINED)
        self._core.lifecycle.require(*serving, action="Saving a checkpoint")

    async def _save(self, engine: Engine) -> CheckpointInfo:
        """Save and record; older checkpoints beyond ``keep``, and those of earlier runs, are deleted."""
        alarms, step = self._core.alarms, self._core.trained_step
        self._owed = True
        try:
            info = await self._written(engine)
        except (CheckpointFailed, JournalFailed) as error:
            alarms.set("checkpoint", f"No checkpoint of step {step}: {error.message}")
            self._core.events.try_add("checkpoint_failed", step=step, why=error.message)
            raise
        self._owed = False
        alarms.set("checkpoint", "")
        return info

    async def _written(self, engine: Engine) -> CheckpointInfo:
        core = self._core
        step, version, fingerprint = core.trained_step, core.version, core.fingerprint or ""
        folder = core.state_dir / "checkpoints" / folder_name(core.incarnation, step)
        # One of this step that is there already stays until the engine puts the new one in its place.
        _make(folder.parent)
        hit(Point.CHECKPOINT_BEFORE_SAVE)
        saved = await engine.save(str(folder))
        hit(Point.CHECKPOINT_SAVED)
        if saved.get("fingerprint", fingerprint) != fingerprint:
            raise EngineFailed(
                f"The checkpoint of step {step} holds {saved['fingerprint']!r}, served is {fingerprint!r}.",
                hint="This is a fault of the engine: report it.",
            )
        info = CheckpointInfo(
            step=step, policy_version=version, path=str(folder), fingerprint=fingerprint
        )
        core.journal.record_checkpoint(info)
        hit(Point.CHECKPOINT_RECORDED)
        core.events.try_add("checkpoint", step=step, path=str(folder))
        core.newest_checkpoint = str(folder)
        core.journal.prune(core.config.checkpoint.keep)
        await asyncio.to_thread(sweep, folder.parent, self._kept())
        hit(Point.CHECKPOINT_PRUNED)
        return info

    def _kept(self) -> list[Path]:
        """Return what must stay: the run's recorded checkpoints, and the model that it began from if that is a checkpoint."""
        kept = [Path(c.path) for c in self._core.journal.checkpoints()]
        model = self._core.config.model.path
        return kept if model.startswith(BUILTIN_PREFIX) else [*kept, Path(model).expanduser()]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointFailed(
            f"The folder {str(folder)!r} cannot be made: {error.strerror}.",
            hint="Free disk space; the next step saves again.",
        ) from error
