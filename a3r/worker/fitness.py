"""Whether this host can take work: its disk has room."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

LEAST_FREE_BYTES = 256 << 20
"""Of an attempt the logs alone may take more."""


def free_bytes(folder: Path) -> int:
    """Bytes that are free where ``folder`` is; ``OSError`` where it is not."""
    return shutil.disk_usage(folder).free


def disk_trouble(home: Path, free: Callable[[Path], int] = free_bytes) -> str:
    """Why nothing new can be started here, in words; empty = it can."""
    try:
        left = free(home)
    except OSError as error:
        return f"the workspace {str(home)!r} cannot be used: {error.strerror or error}"
    if left >= LEAST_FREE_BYTES:
        return ""
    return f"the disk of {str(home)!r} is full ({left >> 20} MiB free): nothing new is taken"
