"""One daemon per workspace: a lock that the kernel frees however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO

from a3r.core.errors import Conflict, WorkspaceError

LOCK_FILE = "lock"


@contextlib.contextmanager
def daemon_lock(folder: Path) -> Generator[None]:
    """Hold the daemon's lock of ``folder``.

    Raises:
        Conflict: another process holds it.
        WorkspaceError: the folder cannot be written.
    """
    with _opened(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(
                f"A daemon of this workspace runs already (pid {holder(folder)}).",
                hint="'a3r daemon status' shows it; 'a3r daemon stop' ends it.",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Whether a daemon holds the lock now, be it ready or not."""
    if not (folder / LOCK_FILE).exists():
        return False
    with _opened(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def holder(folder: Path) -> int | None:
    """Return the pid that the lock names: the holder's while :func:`is_locked`, else the last holder's."""
    try:
        text = (folder / LOCK_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _opened(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise WorkspaceError(
            f"The folder {str(folder)!r} cannot be written: {error.strerror}.",
            hint="Make the workspace writable, or set A3R_HOME to a folder that is.",
        ) from error
