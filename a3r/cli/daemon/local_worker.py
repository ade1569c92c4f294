"""Keeps this host's worker alive. The worker is a process of its own: it outlives the daemon and is found again.

That a worker lives is read from the lock that it holds on the workspace, never from a pid on file.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from a3r.core.ports import Clock
from a3r.core.workspace import Workspace

logger = logging.getLogger(__name__)

LOG_FILE = "worker.log"
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
SETTLED_S = 30.0
"""A worker that lived this long starts the back-off anew."""

Spawn = Callable[[Sequence[str], Path], subprocess.Popen[bytes] | None]


def spawn_detached(argv: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start ``argv`` in a session of its own, output appended to ``log_path``."""
    with log_path.open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=log_path.parent,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )


class LocalWorker:
    """``tend`` is called again and again; it starts the worker when none is there."""

    def __init__(self, workspace: Workspace, clock: Clock, spawn: Spawn = spawn_detached) -> None:
        self._workspace = workspace
        self._clock = clock
        self._spawn = spawn
        self._child: subprocess.Popen[bytes] | None = None
        self._backoff_s = FIRST_BACKOFF_S
        self._not_before = 0.0
        self._started_at = 0.0

    def tend(self) -> bool:
        """Make sure that a worker runs or will be tried again. Returns True when one was started."""
        if self._child is not None:
            self._child.poll()  # reaps it when it has ended
        now = self._clock.monotonic()
        if now < self._not_before or worker_pid(self._workspace) is not None:
            return False
        if self._started_at and now - self._started_at > SETTLED_S:
            self._backoff_s = FIRST_BACKOFF_S
        self._child = self._spawn(worker_argv(self._workspace), self._workspace.daemon / LOG_FILE)
        logger.info("Started the local worker; its log is %s.", LOG_FILE)
        self._started_at = now
        self._not_before = now + self._backoff_s
        self._backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2)
        return True


def worker_argv(workspace: Workspace) -> list[str]:
    """The local worker's command. It finds address and token in files, which each start of the daemon writes anew."""
    return [sys.executable, "-m", "a3r", "worker", "start", "--workspace", str(workspace.root)]


def worker_pid(workspace: Workspace) -> int | None:
    """Return the pid of the worker that serves the workspace; None when none does. 0 = alive, its pid not on file yet."""
    try:
        file = (workspace.worker / "lock").open("r+", encoding="utf-8")
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid_on_file(workspace)
        return None


def _pid_on_file(workspace: Workspace) -> int:
    try:
        body = json.loads((workspace.worker / "worker.json").read_text(encoding="utf-8"))
        return int(body["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def end_worker(workspace: Workspace, timeout_s: float = 20.0) -> bool:
    """Ask the worker to leave (its attempts go on) and wait for it. Returns whether there was one."""
    pid = worker_pid(workspace)
    if not pid:
        return False
    # Its lock is held at this moment and names it: the pid is the worker's.
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while worker_pid(workspace) == pid and time.monotonic() < deadline:
        time.sleep(0.05)
    return True
