"""What walls this host can build: found out by building them, once."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

PROBE_S = 10.0
BASE = (
    "--die-with-parent",
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-uts",
    "--cap-drop",
    "ALL",
)
PROCESSES = ("--unshare-pid", "--as-pid-1")
NETWORK = ("--unshare-net",)
KERNEL = ("/proc/sys", "/proc/fs", "/proc/acpi", "/proc/scsi")


@dataclass(frozen=True)
class HostWalls:
    """What bubblewrap can do here."""

    bwrap: str = ""
    """Its path; empty: there is none, or it does not work."""
    flags: tuple[str, ...] = ()
    """What to give it: the strongest set that worked."""
    version: str = ""
    missing: tuple[tuple[str, str], ...] = ()
    """(wall, why it cannot be built); walls are ``files``, ``processes``, ``network``."""

    @property
    def processes(self) -> bool:
        """Whether other processes are out of sight and reach."""
        return PROCESSES[0] in self.flags

    @property
    def network(self) -> bool:
        """Whether the network can be taken away."""
        return NETWORK[0] in self.flags


@functools.cache
def host_walls() -> HostWalls:
    """Find out, by running ``true`` behind each set of walls from the strongest on; takes some 50 ms, asked once a process."""
    if sys.platform != "linux":
        return _none(f"there is no bubblewrap on {sys.platform}")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return _none("bubblewrap (bwrap) is not installed")
    return probe(bwrap)


def probe(bwrap: str) -> HostWalls:
    """What the program ``bwrap`` can do."""
    said = ""
    for flags, missing in (
        ((*BASE, *PROCESSES, *NETWORK), ()),
        ((*BASE, *PROCESSES), ("network",)),
        ((*BASE, *NETWORK), ("processes",)),
        (BASE, ("processes", "network")),
    ):
        error = _try(bwrap, flags)
        if not error:
            why = tuple((wall, said) for wall in missing)
            return HostWalls(bwrap, flags, _version(bwrap), why)
        said = error
    return _none(f"bubblewrap does not work here: {said}")


def _none(why: str) -> HostWalls:
    return HostWalls(missing=tuple((wall, why) for wall in ("files", "processes", "network")))


def proc_args(flags: Sequence[str]) -> list[str]:
    """How /proc is given: its own, or the host's where processes are not hidden (another user namespace may not look into them).

    Of its own, what speaks for the whole kernel can only be read: a worker that is root is root there too, and who may write
    ``kernel/core_pattern`` runs programs outside of every wall.
    """
    if PROCESSES[0] not in flags:
        return ["--ro-bind", "/proc", "/proc"]
    kernel = [part for name in KERNEL for part in ("--ro-bind-try", name, name)]
    return ["--proc", "/proc", *kernel]


def _try(bwrap: str, flags: Sequence[str]) -> str:
    """Why it does not work with ``flags``; empty = it does."""
    argv = [bwrap, *flags, "--ro-bind", "/", "/", "--dev", "/dev", *proc_args(flags), "--", "true"]
    done = _run(argv)
    if done is None:
        return "it cannot be run"
    return (
        ""
        if done.returncode == 0
        else (done.stderr.strip()[-200:] or f"it ended with {done.returncode}")
    )


def _version(bwrap: str) -> str:
    done = _run([bwrap, "--version"])
    return done.stdout.strip() if done else ""


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    env = {"PATH": os.defpath}
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PROBE_S, check=False, env=env,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
