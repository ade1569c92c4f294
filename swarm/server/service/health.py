"""Looks after what the server stands on: its journal's file and the disk under it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from swarm.protocol.errors import JournalFailed
from swarm.server.service.core import Core

LOOK_S = 5.0
LEAST_FREE_BYTES = 64 * 2**20
CHECKPOINTS_AHEAD = 2
"""Free space is low below this many of the newest checkpoint."""
MIB = 2**20


class Health:
    """Raises and clears the warnings ``journal`` and ``disk``; one look each ``LOOK_S``, whatever ``look`` is called."""

    def __init__(
        self,
        core: Core,
        *,
        least_free_bytes: int = LEAST_FREE_BYTES,
        checkpoints_ahead: int = CHECKPOINTS_AHEAD,
    ) -> None:
        self._core = core
        self._least_free_bytes = least_free_bytes
        self._checkpoints_ahead = checkpoints_ahead
        self._next = core.clock.monotonic()
        self._measured = ("", 0)
        """Newest checkpoint and its size in bytes."""

    def look(self) -> None:
        """Look when it is time. A journal that failed is tried again, so that its warning ends without traffic."""
        now = self._core.clock.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_S
        if self._core.journal.failing:
            with contextlib.suppress(JournalFailed):
                self._core.journal.probe()
        self._core.alarms.set("disk", self._disk())

    def _disk(self) -> str:
        try:
            free = shutil.disk_usage(self._core.state_dir).free
        except OSError as error:
            return f"The state directory cannot be looked at: {error.strerror}."
        wanted = max(self._least_free_bytes, self._checkpoints_ahead * self._checkpoint_bytes())
        if free >= wanted:
            return ""
        return f"The disk of the state directory is nearly full: {free // MIB} MiB are free, {wanted // MIB} MiB should be."

    def _checkpoint_bytes(self) -> int:
        newest = self._core.newest_checkpoint
        if newest != self._measured[0]:
            folder = Path(newest)
            with contextlib.suppress(OSError):
                size = sum(path.stat().st_size for path in folder.iterdir()) if newest else 0
                self._measured = (newest, size)
        return self._measured[1]
