"""Keys of hosts: seen before anything is trusted, accepted by their fingerprint, kept in a file of the workspace."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from a3r.adapters.ssh import Ssh, call
from a3r.adapters.ssh_errors import refusal
from a3r.core.errors import HostError

SCAN_S = 40.0


@dataclass(frozen=True)
class HostKey:
    """One key, as ssh would write it to a known_hosts file."""

    line: str

    @property
    def kind(self) -> str:
        """``ssh-ed25519``, ..."""
        return self.line.split()[1]

    @property
    def fingerprint(self) -> str:
        """``SHA256:...``, as ``ssh-keygen -lf`` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.line.split()[2])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def offered_key(ssh: Ssh) -> HostKey:
    """The key that the host shows now. No credential is offered, and nothing that it says is believed.

    Goes the way of a real connection (aliases, jump hosts), which ``ssh-keyscan`` would not.

    Raises:
        HostError: the host can not be reached.
    """
    with tempfile.TemporaryDirectory(prefix="a3r-key-") as scratch:
        seen = Path(scratch) / "seen"
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": str(seen),
            "GlobalKnownHostsFile": "/dev/null",
            "HashKnownHosts": "no",
            "CheckHostIP": "no",
            "PreferredAuthentications": "none",
            "PubkeyAuthentication": "no",
            "ClearAllForwardings": "yes",
        }
        done = call(ssh.argv("true", options=options), b"", SCAN_S, ssh.address)
        lines = seen.read_text("utf-8", "replace").splitlines() if seen.exists() else []
    keys = [HostKey(line) for line in lines if _is_key(line)]
    if not keys:
        raise refusal(ssh.address, done.err)
    return keys[0]


def accept_key(ssh: Ssh, fingerprint: str) -> HostKey:
    """Trust the host from now on if it shows the key with this fingerprint. Safe to repeat.

    Raises:
        HostError: it shows another key, or can not be reached.
    """
    key = offered_key(ssh)
    if not hmac.compare_digest(key.fingerprint.encode(), fingerprint.strip().rstrip("=").encode()):
        raise HostError(
            f"{ssh.address!r} shows the key {key.fingerprint}, not {fingerprint!r}.",
            hint="Do not go on before you know why. On the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            kind="other_key",
            fingerprint=key.fingerprint,
        )
    _remember(ssh.known_hosts, key)
    return key


def unknown_key(ssh: Ssh) -> HostError:
    """The error that a person needs who sees this host for the first time: its fingerprint, and how to accept it."""
    key = offered_key(ssh)
    return HostError(
        f"The key of {ssh.address!r} is not known here. It shows {key.kind} {key.fingerprint}.",
        hint="Compare that with the host itself (there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then repeat "
        f"the command with --accept-key {key.fingerprint}",
        kind="unknown_key",
        fingerprint=key.fingerprint,
    )


def _remember(known_hosts: Path, key: HostKey) -> None:
    lines = known_hosts.read_text("utf-8").splitlines() if known_hosts.exists() else []
    if key.line in lines:
        return
    # A host that was set up anew has one key of a kind, not two that are both good.
    same = key.line.split()[:2]
    _write(known_hosts, [*(kept for kept in lines if kept.split()[:2] != same), key.line])


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    draft.chmod(0o600)
    draft.replace(path)


def _is_key(line: str) -> bool:
    parts = line.split()
    if line.startswith("#") or len(parts) < 3:
        return False
    try:
        return bool(base64.b64decode(parts[2], validate=True))
    except binascii.Error:
        return False
