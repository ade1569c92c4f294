"""A tmux window that shows the daemon's log. Only a place to look: whatever fails here harms nothing."""

from __future__ import annotations

import logging
import os
import threading

from a3r.cli.daemon.starting import LOG_FILE
from a3r.core.hashing import bytes_hash
from a3r.core.ids import slug
from a3r.core.ports import Terminal
from a3r.core.workspace import Workspace

logger = logging.getLogger(__name__)


def session_of(workspace: Workspace) -> str:
    """Name of the workspace's tmux session."""
    mark = bytes_hash(os.fsencode(workspace.root))[:6]
    return f"a3r-daemon-{slug(workspace.project.name)}-{mark}"


def show(workspace: Workspace, terminal: Terminal) -> None:
    """Open the window, from a thread: tmux may be slow. It closes by itself when this process ends."""

    def work() -> None:
        session = session_of(workspace)
        terminal.close_session(session)
        log = str(workspace.daemon / LOG_FILE)
        argv = ["tail", f"--pid={os.getpid()}", "-n", "100", "-F", log]
        if not terminal.open_window(session, "daemon", argv, cwd=workspace.root, env={}):
            logger.info("No tmux window for the daemon; its log is %s.", LOG_FILE)

    threading.Thread(target=work, name="window", daemon=True).start()
