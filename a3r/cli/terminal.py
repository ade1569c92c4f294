"""The way to tmux for a person at the keyboard."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

from a3r.adapters.tmux import TmuxTerminal
from a3r.core.errors import HostError
from a3r.core.ports import Terminal


def terminal_or_none() -> Terminal | None:
    """Where a person can look; None without tmux."""
    terminal = TmuxTerminal()
    return terminal if terminal.available() else None


def far_attach(host: dict[str, Any], session: str) -> str:
    """The command that attaches to ``session`` on a host over SSH, to be typed or pasted into a shell."""
    from a3r.cli.edge import workspace
    from a3r.hosts.options import HostOptions, known_hosts

    options = HostOptions.model_validate(host["options"])
    ssh = options.ssh(host["address"], known_hosts(workspace()))
    return shlex.join(ssh.typed(*TmuxTerminal().attach_argv(session)))


def attach_to(session: str, *, instead: str) -> None:
    """Replace this process by tmux, attached to ``session``; never returns.

    Raises:
        HostError: there is no tmux here, or not this session, or nobody sits at this terminal; the hint says how else to look.
    """
    terminal = terminal_or_none()
    if terminal is None:
        raise HostError("There is no tmux on this host.", hint=f"Look with: {instead}")
    argv = terminal.attach_argv(session)
    if not terminal.has_session(session):
        raise HostError(
            "The run's tmux windows are gone (somebody ended them, or tmux came after the run began); the run goes on without.",
            hint=f"Look with: {instead}",
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HostError(
            "Attaching needs a terminal.",
            hint=f"From a terminal: {shlex.join(argv)}. Without one: {instead}",
        )
    # Inside another tmux the variable would forbid to attach.
    env = {k: v for k, v in os.environ.items() if k != "TMUX"}
    os.execvpe(argv[0], argv, env)  # noqa: S606 - a fixed command of our own
