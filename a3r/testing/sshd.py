"""A real sshd on loopback, one person's own, and in front of it a piece of network that can be blocked.

Needs ``sshd``, ``ssh`` and ``ssh-keygen``; :func:`missing` says which are not there.
"""

from __future__ import annotations

import os
import pwd
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from a3r.testing.waiting import retry_until

LOOPBACK = "127.0.0.1"


def missing() -> list[str]:
    """Programs that are needed and not there."""
    return [n for n in ("sshd", "ssh", "ssh-keygen") if _which(n) is None]


class Sshd:
    """One sshd with keys of its own, that lets this user in; ``config`` is an ssh configuration that reaches it as ``far``."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must exist; short enough for Unix sockets is not needed."""
        self.folder, self.port = folder, _free_port()
        self.config = folder / "ssh_config"
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, timeout=30)
        self.reach(self.port)
        self._write("sshd_config", self._settings())

    @property
    def fingerprint(self) -> str:
        """Of its key, as ssh-keygen tells it."""
        command = ["ssh-keygen", "-lf", str(self.folder / "host_key.pub")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
        return done.stdout.split()[1]

    def reach(self, port: int) -> None:
        """Let ``far`` lead to another port (of a :class:`Wire`)."""
        lines = {
            "Host": "far",
            "HostName": LOOPBACK,
            "Port": str(port),
            "User": pwd.getpwuid(os.geteuid()).pw_name,
            "IdentityFile": f'"{self.folder / "user_key"}"',
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "HostKeyAlias": "far",
            "UserKnownHostsFile": f'"{self.folder / "known_hosts"}"',
        }
        self._write("ssh_config", lines)

    @contextmanager
    def running(self) -> Generator[Sshd]:
        """Serve; at the end every connection is cut."""
        if os.geteuid() == 0:  # sshd's own folder for a privileged start; packages make it at boot
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        argv = [str(_which("sshd")), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output)
        try:
            retry_until(lambda: process.poll() is not None or _accepts(self.port))
            assert process.poll() is None, (self.folder / "sshd.log").read_text()
            yield self
        finally:
            process.terminate()
            process.wait(10)

    def _settings(self) -> dict[str, str]:
        return {
            "Port": str(self.port),
            "ListenAddress": LOOPBACK,
            "HostKey": f'"{self.folder / "host_key"}"',
            "AuthorizedKeysFile": f'"{self.folder / "user_key.pub"}"',
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }

    def _write(self, name: str, lines: dict[str, str]) -> None:
        (self.folder / name).write_text("".join(f"{k} {v}\n" for k, v in lines.items()))


class Wire:
    """TCP from a port of its own to another; ``blocked``: nothing gets through, and neither side is told."""

    def __init__(self, target: int) -> None:
        """Listens at once."""
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def block(self) -> None:
        """Like a cable that was pulled: connections stay, packets do not."""
        self._open.clear()

    def unblock(self) -> None:
        """Let through what waits, and what comes."""
        self._open.set()

    def close(self) -> None:
        """Listen no more."""
        self._ended = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._open.wait()
        with near, suppress(OSError), socket.create_connection((LOOPBACK, self._target)) as far:
            while not self._ended:
                ready, _, _ = select.select([near, far], [], [], 0.5)
                self._open.wait()
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    (far if one is near else near).sendall(data)


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
