"""The servers of this user on this machine: one small file each, written by ``swarm serve``, read by ``swarm list``.

A record says which process it belongs to: its pid *and* when that process began. One whose process is gone is deleted by
whoever reads it; whether a process lives is never guessed from its pid alone. A record holds no secret.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError


class LocalServer(BaseModel):
    """One running server of this user."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server_id: str
    url: str
    pid: int
    born: str
    """``birth_of(pid)`` when it was written."""
    state_dir: str
    version: str


def birth_of(pid: int) -> str:
    """Return when the living process ``pid`` began, as a text that no later process of that pid has; empty when there is none.

    Linux: the boot's id and the start in clock ticks since boot, which a change of the wall clock does not move.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        state, *rest = fields.rpartition(")")[2].split()
        return "" if state in "ZX" else f"{boot}/{rest[18]}"
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except (OSError, IndexError, ValueError):
        return ""
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""


def enter(folder: Path, server: LocalServer) -> Path:
    """Write the record of a server (mode 0600) and return its path, to be deleted when the server ends.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{server.server_id}-{server.pid}.json"
    draft = folder / f".{path.name}.{secrets.token_hex(4)}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(server.model_dump_json())
    draft.replace(path)
    return path


def listed(folder: Path) -> list[LocalServer]:
    """Return the living servers by state folder; records of dead ones are deleted, unreadable files are left alone."""
    found: list[LocalServer] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            server = LocalServer.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue
        if server.born and birth_of(server.pid) == server.born:
            found.append(server)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda server: server.state_dir)
