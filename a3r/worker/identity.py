"""Who this worker is: an id that outlives its restarts, a lock against a second one, what the host has."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from a3r.core.errors import WorkspaceError
from a3r.core.hashing import content_hash
from a3r.core.ids import new_id
from a3r.worker.gpus import GpuOffice
from a3r.worker.processes import read_json
from a3r.worker.supervisor import write_json


def lock_file(home: Path) -> Path:
    """The file that the worker of a workspace holds locked."""
    return home / "worker" / "lock"


@contextmanager
def worker_lock(home: Path) -> Generator[str]:
    """Hold the workspace's worker lock; yields the worker's id. The kernel frees the lock however the process ends.

    Args:
        home: the ``.a3r`` folder.

    Raises:
        WorkspaceError: another worker holds it, or the folder is not writable.
    """
    folder = home / "worker"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = lock_file(home).open("a+", encoding="utf-8")
    except OSError as error:
        raise WorkspaceError(
            f"The workspace {str(home)!r} cannot be written: {error.strerror}.",
            hint="Choose a folder that this user can write to.",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = (read_json(folder / "worker.json") or {}).get("pid", "unknown")
            raise WorkspaceError(
                f"Another worker (pid {holder}) serves the workspace {str(home)!r}.",
                hint="One worker a workspace: stop that one, or use another workspace.",
            ) from error
        known = read_json(folder / "worker.json") or {}
        worker_id = str(known.get("worker_id") or new_id("w", time.time()))
        record = {"worker_id": worker_id, "pid": os.getpid(), "started_at": time.time()}
        write_json(folder / "worker.json", record)
        yield worker_id


def inventory(home: Path, gpus: GpuOffice | None = None) -> dict[str, Any]:
    """What the host offers: cores, memory, disk, GPUs, system, versions. JSON values; None = could not be found out."""
    found: dict[str, Any] = {
        "seat": seat(home),
        "cpus": usable_cpus(),
        "gpus": gpus.inventory() if gpus is not None else [],
        "system": platform.platform(),
        "python": platform.python_version(),
        "software": _software(),
        "memory_bytes": None,
        "disk_free_bytes": None,
    }
    with suppress(OSError, ValueError):
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        found["disk_free_bytes"] = shutil.disk_usage(home).free
    return json.loads(json.dumps(found))


def seat(home: Path) -> str:
    """Where this worker's folder lies, as 16 hex digits: another on a copy of the folder, the same after a restart.

    Of the host's name, the folder's path and the kernel's start: a cloned machine has the first two.
    """
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return content_hash([socket.gethostname(), str(home.resolve()), boot])[:16]


def _software() -> dict[str, str | None]:
    """Versions of what experiments run on; None = not installed. Read from metadata: nothing is imported."""
    versions: dict[str, str | None] = {}
    for name in ("a3r", "torch", "vllm", "verl", "ray"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {**versions, "tmux": shutil.which("tmux"), "bwrap": shutil.which("bwrap")}


def default_slots(gpus: GpuOffice | None) -> int:
    """Attempts at once when nobody says: one a GPU, on a host without GPUs one a usable core."""
    count = len(gpus.inventory()) if gpus is not None else 0
    return count or usable_cpus()


def usable_cpus() -> int:
    """Cores that this process may use; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
