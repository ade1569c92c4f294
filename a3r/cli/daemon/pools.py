"""The thread that looks after pools: an engine may take minutes to answer, and no tick waits for it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from a3r.cli.daemon.door import Door
from a3r.core.pools import PoolEngine, PoolKind, PoolOptions
from a3r.core.ports import Clock
from a3r.pools.keeper import PoolKeeper
from a3r.pools.options import checked
from a3r.store.rows import PoolRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - looked for, not listened on


class PoolThread:
    """Looks after the daemon's pools from ``start`` on."""

    def __init__(
        self, store: Store, clock: Clock, workspace: Path, every_s: float, door: Door | None
    ) -> None:
        """``every_s``: between two looks; ``door``: where workers of other machines come in."""
        self._store, self._clock, self._workspace = store, clock, workspace
        self._every_s, self._door = every_s, door
        self._ending = threading.Event()

    def check(self, kind: PoolKind, options: PoolOptions) -> PoolOptions:
        """The options as they are kept; raises ``PoolRefused``."""
        usable = self._door is not None and self._door.host not in EVERYWHERE
        return checked(kind, options, self._door.url if self._door and usable else "")

    def start(self, heard: Mapping[str, float], local_url: str) -> None:
        """Begin. ``heard``: worker id -> its last word; ``local_url``: the hub on this machine."""
        keeper = PoolKeeper(self._store, self._clock, self._engine_of, heard, lambda: local_url)
        threading.Thread(target=self._run, args=(keeper,), name="pools", daemon=True).start()

    def stop(self) -> None:
        """Begin no further look; one that is under way is not waited for: what it has done is on file."""
        self._ending.set()

    def _run(self, keeper: PoolKeeper) -> None:
        while not self._ending.wait(self._every_s):
            try:
                keeper.tend()
            except Exception:
                if self._ending.is_set():
                    return  # the store was closed under the look
                logger.exception("Pools were not looked at; it will be tried again.")

    def _engine_of(self, pool: PoolRow) -> PoolEngine:
        return engine(pool, self._workspace, os.environ)


def engine(pool: PoolRow, workspace: Path, environ: Mapping[str, str]) -> PoolEngine:
    """The engine of a pool; nothing is asked of it yet."""
    from a3r.adapters.ray_jobs import RayJobs
    from a3r.adapters.skypilot_jobs import SkyPilotJobs
    from a3r.adapters.submitit_jobs import SubmititJobs, folder_of

    if pool.kind is PoolKind.RAY:
        return RayJobs(pool.options)
    if pool.kind is PoolKind.SKYPILOT:
        return SkyPilotJobs(pool.options, environ)
    folder = folder_of(pool.options, pool.name, workspace)
    return SubmititJobs(pool.kind, pool.options, folder, environ)
