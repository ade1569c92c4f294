"""Commands on another host through OpenSSH's own client: keys only, verified hosts only, never a question to a person.

The person's ``~/.ssh/config`` counts (aliases, jump hosts, identities). What could ask, forward or share is switched off.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from a3r.adapters.ssh_errors import refusal
from a3r.core.errors import HostError

CONNECT_S = 15
ADDRESS = re.compile(r"^(?:[A-Za-z0-9_.+-]+@)?[A-Za-z0-9_.:%\[\]-]+$")
SYSTEM_KEYS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
QUIET = {
    "BatchMode": "yes",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "ControlMaster": "no",
    "ControlPath": "none",
    "RemoteCommand": "none",
    "PermitLocalCommand": "no",
    "Tunnel": "no",
    "UpdateHostKeys": "no",
    "ConnectTimeout": str(CONNECT_S),
}
"""Options of every call; each wins over the person's configuration."""
SSH_FAILED = 255
"""ssh's own exit code for a connection that did not come about, or broke."""


@dataclass(frozen=True)
class Done:
    """What a remote command did."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class Ssh:
    """The way to one host."""

    address: str
    """``user@host``, or an alias of the person's ssh configuration."""
    known_hosts: Path
    """Keys that were accepted with ``--accept-key``; those of the person and of the system count too."""
    port: int | None = None
    identity: str = ""
    """A private key's file; empty = what ssh finds (agent, default files, configuration)."""
    config: str = ""
    """An ssh configuration to use instead of the person's."""
    alive_s: int = 5
    """A link whose far side was silent for three times as long is broken."""

    def __post_init__(self) -> None:
        """Refuse what ssh would take for an option or a command."""
        if not ADDRESS.match(self.address) or self.address.startswith("-"):
            raise HostError(
                f"{self.address!r} is no address of a host.",
                hint="Write user@host, or a name from ~/.ssh/config; a port goes into --port.",
            )

    def argv(self, command: str, *extra: str, options: dict[str, str] | None = None) -> list[str]:
        """The command line that runs ``command`` in the far login shell; ``extra`` are more arguments of ssh."""
        trusted = " ".join(_quoted(p) for p in (*SYSTEM_KEYS, str(self.known_hosts)))
        given = {
            **QUIET,
            "StrictHostKeyChecking": "yes",
            "GlobalKnownHostsFile": trusted,
            "ServerAliveInterval": str(self.alive_s),
            "ServerAliveCountMax": "3",
            **(options or {}),
        }
        return [*self.way(), *_options(given), *extra, "--", self.address, command]

    def way(self) -> list[str]:
        """``ssh`` with port, identity and configuration, as a person would type it."""
        parts = ["ssh"]
        parts += ["-F", self.config] if self.config else []
        parts += ["-p", str(self.port)] if self.port is not None else []
        parts += ["-i", self.identity] if self.identity else []
        return parts

    def typed(self, *words: str) -> list[str]:
        """The command line for a person at a terminal who runs ``words`` there, the keys accepted here known to it."""
        trusted = " ".join(_quoted(p) for p in (*SYSTEM_KEYS, str(self.known_hosts)))
        known = _options({"GlobalKnownHostsFile": trusted}) if self.known_hosts.exists() else []
        return [*self.way(), *known, "-t", self.address, shlex.join(words)]

    def run(self, command: str, data: bytes = b"", *, timeout_s: float = 60.0) -> Done:
        """Run ``command`` there with ``data`` on its stdin, and wait.

        Raises:
            HostError: no connection (``details["kind"]`` says why: see ``ssh_errors``), or ``timeout_s`` passed.
        """
        argv = self.argv(command, options={"ClearAllForwardings": "yes"})
        done = call(argv, data, timeout_s, self.address)
        if done.code == SSH_FAILED:
            raise refusal(self.address, done.err)
        return done

    def link(self, command: str, far_socket: str, port: int) -> subprocess.Popen[bytes]:
        """Start ``command`` there and keep it, with ``far_socket`` leading to ``port`` of this host's loopback.

        The socket is a file that only the far user can open, so neither other users there nor a former link that the
        far side has not yet given up is in the way. Pipes: write to stdin, read stdout and stderr. ``far_socket`` empty:
        no way back. The process ends when its stdin is closed and the command heeds that.
        """
        way_back = ("-R", f"{far_socket}:127.0.0.1:{port}") if far_socket else ()
        argv = self.argv(command, *way_back, options={"ExitOnForwardFailure": "yes"})
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, bufsize=0
        )


def call(argv: Sequence[str], data: bytes, timeout_s: float, address: str) -> Done:
    """Run a command of OpenSSH on this host.

    Raises:
        HostError: there is no such program, or it took longer than ``timeout_s``.
    """
    try:
        # In a session of its own: a Ctrl-C of the person ends the waiting, not half of a remote command.
        done = subprocess.run(
            argv,
            input=data,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise HostError(
            f"There is no {argv[0]!r} on this machine.", hint="Install the OpenSSH client."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"{address!r} did not finish within {timeout_s:.0f} s.",
            hint="The link or the host is slow or stuck; the same command can be given again.",
            kind="timeout",
        ) from error
    return Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def _options(given: dict[str, str]) -> list[str]:
    return [part for key, value in given.items() for part in ("-o", f"{key}={value}")]


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
