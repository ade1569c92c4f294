"""When weights are saved, where, and which saved ones are kept."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

from swarm.protocol.errors import EngineFailed
from swarm.protocol.messages import CheckpointInfo
from swarm.server.ports import Engine
from swarm.server.service.core import Core
from swarm.server.service.recovery import EngineKeeper

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves through the engine, records in the journal, deletes what is not kept."""

    def __init__(self, core: Core, keeper: EngineKeeper) -> None:
        self._core = core
        self._keeper = keeper

    async def after_step(self) -> None:
        """Save when the completed step asks for it; call in WEIGHT_SYNCING. An engine that dies in it is recovered."""
        core = self._core
        every, last = core.config.checkpoint.every_steps, core.config.stop_at_step
        if core.step % every == 0 or core.step >= last:
            await self._keeper.use(self.save)

    async def save(self, engine: Engine) -> CheckpointInfo:
        """Save the current step's weights and record them; older checkpoints beyond ``keep`` are deleted.

        Raises:
            EngineFailed: The engine died, or saved other weights than it serves; nothing is recorded then.
        """
        core = self._core
        step, version, fingerprint = core.step, core.version, core.fingerprint or ""
        folder = core.state_dir / "checkpoints" / f"{core.incarnation}-step-{step:06d}"
        # One of this step that is there already stays until the engine puts the new one in its place.
        folder.parent.mkdir(parents=True, exist_ok=True)
        saved = await engine.save(str(folder))
        if saved.get("fingerprint", fingerprint) != fingerprint:
            raise EngineFailed(
                f"The checkpoint of step {step} holds {saved['fingerprint']!r}, served is {fingerprint!r}.",
                hint="This is a fault of the engine: report it.",
            )
        info = CheckpointInfo(
            step=step, policy_version=version, path=str(folder), fingerprint=fingerprint
        )
        core.journal.record_checkpoint(info)
        core.events.add("checkpoint", step=step, path=str(folder))
        for old in core.journal.prune(core.config.checkpoint.keep):
            await asyncio.to_thread(shutil.rmtree, Path(old.path), ignore_errors=True)
        return info
