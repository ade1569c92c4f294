"""Find the workspace's daemon, or start one and wait until it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, cast

from a3r.cli.daemon.lock import is_locked
from a3r.core.errors import A3RError, AuthFailed, HubUnreachable
from a3r.core.workspace import Workspace
from a3r.hub.client import ERRORS, HubClient, is_alive
from a3r.hub.ready import ReadyRecord, read_ready
from a3r.hub.tokens import HubTokens

LOG_FILE = "daemon.log"
FAILURE_FILE = "failure.json"
"""Why the last start failed: the envelope of an ``A3RError``."""
START_TIMEOUT_S = 30.0
LOG_TAIL_LINES = 12
EXIT_CONFLICT = 3


def find_daemon(workspace: Workspace) -> tuple[ReadyRecord, HubClient] | None:
    """Return the daemon that answers and has proven to be this workspace's; None when there is none."""
    folder = workspace.daemon
    ready = read_ready(folder)
    if ready is None:
        return None
    try:
        tokens = HubTokens.read(folder)
    except AuthFailed:
        if is_locked(folder):
            raise
        return None
    return (ready, HubClient(ready.url, tokens.admin)) if is_alive(ready, tokens) else None


def ensure_daemon(workspace: Workspace, *, timeout_s: float = START_TIMEOUT_S) -> HubClient:
    """Return a client of the workspace's daemon, started when it does not run. Many callers at once get the same one.

    Raises:
        A3RError: why it could not start, as the daemon itself tells it.
        HubUnreachable: it did not become ready in time.
    """
    deadline = time.monotonic() + timeout_s
    child: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline:
        found = find_daemon(workspace)
        if found is not None:
            if child is not None and child.poll() is None:
                # It outlives this process and is nobody's to wait for: Popen shall not complain about that.
                child.returncode = 0
            return found[1]
        if child is not None and child.poll() not in (None, EXIT_CONFLICT):
            raise start_failure(workspace, child.returncode)
        if (child is None or child.poll() is not None) and not is_locked(workspace.daemon):
            child = spawn_daemon(workspace)
        time.sleep(0.05)
    raise HubUnreachable(
        f"The daemon did not answer within {timeout_s:.0f} s.\n{log_tail(workspace)}",
        hint="'a3r doctor' looks for the cause; 'a3r daemon stop' ends a daemon that hangs.",
    )


def spawn_daemon(workspace: Workspace) -> subprocess.Popen[bytes]:
    """Start the daemon detached from this terminal, its output in ``daemon.log``."""
    folder = workspace.daemon
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / FAILURE_FILE).unlink(missing_ok=True)
    with (folder / LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "a3r.cli.daemon", "--workspace", str(workspace.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=workspace.root,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            close_fds=True,
        )


def start_failure(workspace: Workspace, code: int) -> A3RError:
    """Return what a daemon that ended before it was ready left as its reason."""
    path = workspace.daemon / FAILURE_FILE
    try:
        told = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8"))["error"])
        cls = ERRORS.get(str(told["code"]), A3RError)
        return cls(str(told["message"]), hint=str(told["hint"]))
    except (OSError, ValueError, KeyError, TypeError):
        workspace.require_usable()  # on a full disk the daemon could not even leave its reason
        return HubUnreachable(
            f"The daemon ended at its start (exit code {code}).\n{log_tail(workspace)}".rstrip(),
            hint=f"The whole log is in {str(path.with_name(LOG_FILE))!r}; 'a3r doctor' checks the machine.",
        )


def log_tail(workspace: Workspace, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of ``daemon.log``; empty when there is none."""
    try:
        data = (workspace.daemon / LOG_FILE).read_bytes()[-20_000:]
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])


def ended_in_order(workspace: Workspace) -> bool:
    """Whether the last daemon took leave (somebody stopped it) and none runs now."""
    ready = read_ready(workspace.daemon)
    return ready is not None and ready.pid == 0 and not is_locked(workspace.daemon)
