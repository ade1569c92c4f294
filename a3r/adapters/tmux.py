"""tmux as a ``Terminal``: a place to look at an attempt's processes, on a private socket. Truth is never kept here.

Commands are given to tmux as the window's program, never typed into a shell: keys sent to a young pane get lost. Every
failure is swallowed, with one warning; the caller then starts the process without a window.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from libtmux import Server
from libtmux.exc import LibTmuxException

logger = logging.getLogger(__name__)

SOCKET = "a3r"
HISTORY_LINES = 5000
"""Of one pane; fixed when the pane is made. Much more makes the whole host's tmux slow."""


class TmuxTerminal:
    """Implements ``a3r.core.ports.Terminal``."""

    def __init__(self, socket: str = SOCKET) -> None:
        """``socket``: name of the tmux server, apart from the user's own sessions."""
        self._socket = socket
        self._warned = False

    def available(self) -> bool:
        """Whether there is a tmux program."""
        return shutil.which("tmux") is not None

    def open_window(
        self, session: str, name: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> bool:
        """Run ``argv`` in a new window of ``session`` (made if absent); False when that was not possible."""
        try:
            return self._open(session, name, argv, cwd, env)
        except (LibTmuxException, OSError, ValueError) as error:
            return self._failed(f"{type(error).__name__}: {error}")

    def close_session(self, session: str) -> None:
        """Close the session's windows; a missing session or server is fine."""
        if not self.available():
            return
        try:
            self._server().cmd("kill-session", target=f"={session}")
        except (LibTmuxException, OSError, ValueError) as error:
            self._failed(f"{type(error).__name__}: {error}")

    def has_session(self, session: str) -> bool:
        """Whether the session is there; False too when tmux does not answer."""
        try:
            return self._server().cmd("has-session", target=f"={session}").returncode == 0
        except (LibTmuxException, OSError, ValueError):
            return False

    def attach_argv(self, session: str) -> list[str]:
        """The command that a person runs to attach."""
        return ["tmux", "-L", self._socket, "attach-session", "-t", f"={session}"]

    def _open(
        self, session: str, name: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> bool:
        if not self.available():
            return False
        server = self._server()
        window = ["-n", name, "-c", str(cwd)]
        for key, value in env.items():
            window += ["-e", f"{key}={value}"]
        # An argument that ends in ";" would end the tmux command.
        program = [a[:-1] + r"\;" if a.endswith(";") else a for a in argv]
        found = server.cmd("has-session", target=f"={session}")
        if found.returncode == 0:
            answer = server.cmd("new-window", "-d", *window, "--", *program, target=f"={session}:")
        else:
            # In one command: a server without sessions leaves at once, and the limit must be set before the pane is made.
            answer = server.cmd(
                *(
                    "start-server",
                    ";",
                    "set-option",
                    "-g",
                    "history-limit",
                    str(HISTORY_LINES),
                    ";",
                ),
                *("new-session", "-d", "-s", session, "-x", "200", "-y", "50"),
                *(*window, "--", *program),
            )
        if answer.returncode != 0:
            return self._failed(" ".join(answer.stderr) or f"exit code {answer.returncode}")
        return True

    def _server(self) -> Server:
        return Server(socket_name=self._socket)

    def _failed(self, why: str) -> bool:
        if not self._warned:
            self._warned = True
            logger.warning("tmux shows no windows (%s); processes run without them", why)
        return False
