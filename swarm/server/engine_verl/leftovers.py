"""Processes of one rollout replica: which they are, and their end when the server above them was killed.

vLLM's engine process outlives a server that is killed: it would keep the GPU that the next one needs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from swarm.server.engine_verl.nonces import NONCE

GONE_S = 60.0
"""A killed process that holds a GPU takes seconds to go."""
LOOK_S = 0.05
STATE, PARENT, STARTED = 0, 1, 19
"""Places in ``/proc/<pid>/stat`` after the name (proc_pid_stat(5))."""
Process = tuple[int, int]
"""Number, and when it started in the kernel's ticks: numbers are given out again."""


def descendants(pid: int | None = None) -> list[Process]:
    """Return a process (None = this one) and all below it, in the order of their generations."""
    root = os.getpid() if pid is None else pid
    rows = {int(path.parent.name): _fields(path) for path in Path("/proc").glob("[0-9]*/stat")}
    found = [root]
    for one in found:
        found += [child for child, fields in rows.items() if fields and int(fields[PARENT]) == one]
    return [(one, int(rows[one][STARTED])) for one in found if rows.get(one)]


def end_processes(processes: Iterable[Process], nonce: str, *, gone_s: float = GONE_S) -> list[int]:
    """Kill those that still run and carry the nonce, and wait until they are gone; returns which were killed.

    A number that belongs to somebody else by now is left alone. Runs on the node of the processes.

    Raises:
        TimeoutError: one would not go.
    """
    killed = [one for one in processes if lives(one) and _carries(one[0], nonce)]
    for pid, _ in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + gone_s
    while left := [one[0] for one in killed if lives(one)]:
        if time.monotonic() > until:
            msg = f"Processes {left} were killed {gone_s:g} s ago and are still there."
            raise TimeoutError(msg)
        time.sleep(LOOK_S)
    return [pid for pid, _ in killed]


def _carries(pid: int, nonce: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{NONCE}={nonce}".encode() in variables


def lives(process: Process) -> bool:
    """Return whether it runs, and not another one of its number; one that only waits to be reaped holds nothing."""
    fields = _fields(Path(f"/proc/{process[0]}/stat"))
    return bool(fields) and fields[STATE] not in "ZX" and int(fields[STARTED]) == process[1]


def _fields(stat: Path) -> list[str]:
    """What Linux says of a process after its name; empty when it has gone."""
    try:
        text = stat.read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
