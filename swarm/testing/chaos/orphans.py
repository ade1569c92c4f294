"""A process of a proof does not outlive whoever started it, however that ended."""

from __future__ import annotations

import os
import threading
import time

LOOK_S = 1.0


def end_with_parent() -> None:
    """End this process at once when its parent is gone; watched from a thread. Call it at the start."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
