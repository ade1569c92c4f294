"""Supervised processes as a worker sees them: started through a terminal or directly, known by the files they write.

A ``Process`` is a folder. Everything is read from its records, so a worker that was restarted sees what its former self saw.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from a3r.core.errors import HostError
from a3r.core.ports import Terminal
from a3r.worker import supervisor
from a3r.worker.logs import read_tail
from a3r.worker.private import write_private

logger = logging.getLogger(__name__)

SUPERVISOR = Path(supervisor.__file__)
PATIENCE_S = 5.0
"""A start through the terminal that shows no record within this is repeated directly."""
GIVE_UP_S = 20.0
"""A start without a start record after this is given up: its exit is unknown."""
TAIL_BYTES = 16384
KEPT_ENV = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PYTHONPATH"),
)


def child_env(environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of an attempt's processes: a few names of ``environ``, so no secret; one thread per process."""
    kept = {name: environ[name] for name in KEPT_ENV if name in environ}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class ProcessState(StrEnum):
    """What the records say of one start."""

    ABSENT = "absent"  # nothing was asked for
    STARTING = "starting"  # asked for, no start record yet
    RUNNING = "running"
    EXITED = "exited"  # there is an exit record
    UNKNOWN = "unknown"  # its supervisor is gone without one


@dataclass(frozen=True)
class ExitRecord:
    """What became of a process."""

    code: int | None = None
    """Exit code; None when a signal ended it, or when nothing is known."""
    signal: str | None = None
    """e.g. ``SIGKILL``."""
    asked_by: str | None = None
    """``SIGTERM`` or ``SIGINT`` sent to the supervisor, ``max_time``; None = it ended by itself."""
    timed_out: bool = False
    error: str = ""
    """Why it could not be started."""
    wall_s: float | None = None
    cpu_s: float | None = None
    """User and system time of it and of all its descendants."""
    oom_kills: int = 0
    """Processes that the kernel ended on this host for lack of memory while it ran."""
    unknown: bool = False
    """The supervisor died; nothing else here is known."""

    def words(self) -> str:
        """One phrase for a person."""
        if self.unknown:
            return "exit unknown (its supervisor is gone)"
        if self.error:
            return self.error
        how = f"signal {self.signal}" if self.signal else f"exit code {self.code}"
        return f"{how} after {self.asked_by}" if self.asked_by else how


class Process:
    """One start (generation) of one role of an attempt."""

    def __init__(self, folder: Path) -> None:
        """``folder``: ``proc/<role>.<generation>``."""
        self.folder = folder

    @property
    def name(self) -> str:
        """``client.2``."""
        return self.folder.name

    @property
    def generation(self) -> int:
        """Counts from 1."""
        return int(self.folder.name.rpartition(".")[2])

    def state(self) -> ProcessState:
        """Read the records. STARTING becomes UNKNOWN by itself after a while."""
        if (self.folder / "exit.json").exists():
            return ProcessState.EXITED
        start = read_json(self.folder / "start.json")
        if start is None:
            return self._before_start()
        if _is_alive(start["supervisor"]):
            return ProcessState.RUNNING
        # It may have written the exit record and ended since we looked.
        exited = (self.folder / "exit.json").exists()
        return ProcessState.EXITED if exited else ProcessState.UNKNOWN

    def _before_start(self) -> ProcessState:
        if (self.folder / "exit.json").exists():
            return ProcessState.EXITED
        age = self.age_s()
        if age is None:
            return ProcessState.ABSENT
        if age < GIVE_UP_S:
            return ProcessState.STARTING
        # Only one of us gets the claim: a supervisor that comes late finds it taken and leaves.
        supervisor.claim(self.folder)
        started = (self.folder / "start.json").exists()
        return ProcessState.RUNNING if started else ProcessState.UNKNOWN

    def age_s(self) -> float | None:
        """Seconds since the start was asked for; None when it never was."""
        try:
            return max(0.0, time.time() - (self.folder / "spec.json").stat().st_mtime)
        except OSError:
            return None

    def supervisor(self) -> tuple[int, int] | None:
        """(pid, start time) of what keeps it; None before the start record and after the exit record."""
        start = read_json(self.folder / "start.json")
        if start is None or (self.folder / "exit.json").exists():
            return None
        return int(start["supervisor"]["pid"]), int(start["supervisor"]["start_time"])

    def exit(self) -> ExitRecord:
        """The exit record; ``unknown`` when there is none. Meaningful once the state is EXITED or UNKNOWN."""
        raw = read_json(self.folder / "exit.json")
        if raw is None:
            return ExitRecord(unknown=True)
        known = {name: raw[name] for name in ExitRecord.__dataclass_fields__ if name in raw}
        return ExitRecord(**known)

    def spec(self) -> dict[str, Any]:
        """What was asked for."""
        return read_json(self.folder / "spec.json") or {}

    def log_tail(self, limit: int = TAIL_BYTES) -> bytes:
        """The last bytes of this start's own output; older starts in the same file are left out."""
        path = Path(str(self.spec().get("log", "")))
        begin = (read_json(self.folder / "start.json") or {}).get("log_offset", 0)
        return read_tail(path, limit, begin)

    def terminate(self) -> None:
        """Ask the supervisor to end the process (TERM, grace, KILL). Returns at once; safe to repeat; a gone one is fine."""
        start = read_json(self.folder / "start.json")
        if start is not None:
            _signal(start["supervisor"], signal.SIGTERM)
        elif self.age_s() is not None:
            supervisor.claim(self.folder)  # not started yet: now it never will

    def sweep(self, grace_s: float = 5.0) -> int:
        """End what a dead supervisor left behind; returns how many processes there were.

        Found by their environment, and by the last record of who descended from the child, each checked by its start time.
        """
        spec = self.spec()
        if not spec.get("nonce"):
            return 0
        marks = {supervisor.NONCE: spec["nonce"], supervisor.PROCESS: self.name}
        return supervisor.end_all(lambda: supervisor.owned(marks) | self._family(), grace_s)

    def _family(self) -> dict[int, int]:
        beat = read_json(self.folder / "heartbeat.json") or {}
        known = {int(pid): int(started) for pid, started in beat.get("family", {}).items()}
        alive = {pid: s for pid, s in known.items() if supervisor.start_time(pid) == s}
        for pid in list(alive):
            alive |= supervisor.descendants(pid)
        return alive


def sweep(marks: dict[str, str], grace_s: float = 5.0) -> int:
    """End every process whose environment holds all ``marks``; returns how many there were."""
    return supervisor.end_all(lambda: supervisor.owned(marks), grace_s)


def count_owned(nonce: str) -> int:
    """How many living processes carry the nonce."""
    return len(supervisor.owned({supervisor.NONCE: nonce}))


class Launcher:
    """Starts supervisors, in windows of a terminal where there is one."""

    def __init__(self, terminal: Terminal | None, environ: Mapping[str, str]) -> None:
        """``environ``: the worker's own; of it the children get what ``child_env`` keeps."""
        self._terminal = terminal
        self.environ = environ
        self._env = child_env(environ)

    def start(
        self,
        folder: Path,
        argv: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        nonce: str,
        session: str,
        max_time_s: float | None = None,
        grace_s: float = 5.0,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        rotate_bytes: int = supervisor.ROTATE_BYTES,
    ) -> Process:
        """Ask for a start and return at once; the records tell the rest.

        ``env`` is added to what every process gets. ``secrets`` too, through a file that its supervisor removes when it has
        read it.

        Raises:
            HostError: the spec cannot be written or no supervisor can be started.
        """
        spec = {
            "argv": list(argv),
            "cwd": str(cwd),
            "env": {**self._env, **(env or {})},
            "record_dir": str(folder),
            "log": str(log),
            "nonce": nonce,
            "label": folder.name,
            "max_time_s": max_time_s,
            "grace_s": grace_s,
            "rotate_bytes": rotate_bytes,
        }
        _write_spec(folder, log, spec, secrets)
        role = folder.name.rpartition(".")[0]
        if not (self._terminal and self._open_window(self._terminal, session, role, folder)):
            self.start_directly(folder)
        return Process(folder)

    def _open_window(self, terminal: Terminal, session: str, role: str, folder: Path) -> bool:
        argv = supervisor_argv(folder)
        return terminal.available() and terminal.open_window(
            session, role, argv, cwd=folder, env={}
        )

    def start_directly(self, folder: Path) -> None:
        """Start the supervisor of a spec without a terminal. Harmless when it runs already.

        Raises:
            HostError: it cannot be started.
        """
        try:
            subprocess.run(
                supervisor_argv(folder),
                env={**self._env, supervisor.DETACH: "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                check=False,
                timeout=30,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise HostError(
                f"{folder.name} cannot be started: {error}.", hint="Look at the host's limits."
            ) from error

    def nudge(self, process: Process) -> None:
        """Repeat a start directly that came to nothing in the terminal."""
        age = process.age_s()
        if age is not None and age > PATIENCE_S and not (process.folder / "claim").exists():
            logger.warning("%s did not start in the terminal; starting it directly", process.name)
            self.start_directly(process.folder)

    def close_session(self, session: str) -> None:
        """Close the windows of an attempt that is over."""
        if self._terminal is not None:
            self._terminal.close_session(session)


def _write_spec(
    folder: Path, log: Path, spec: dict[str, Any], secrets: Mapping[str, str] | None
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        if secrets:
            spec["secret_file"] = str(folder / "secrets.json")
            write_private(folder / "secrets.json", json.dumps(dict(secrets)))
        supervisor.write_json(folder / "spec.json", spec)
    except OSError as error:
        raise HostError(
            f"{folder.name} cannot be started: {error}.", hint="Is the disk full or read-only?"
        ) from error


def supervisor_argv(folder: Path) -> list[str]:
    """The command that supervises the spec in ``folder``. -I -S: nothing of the environment reaches it, and it starts fast."""
    return [sys.executable, "-I", "-S", str(SUPERVISOR), str(folder / "spec.json")]


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a record; None when it is not there or not whole."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
    return None


def _is_alive(who: dict[str, Any]) -> bool:
    started = supervisor.start_time(int(who["pid"]))
    return started is not None and started == who["start_time"]


def _signal(who: dict[str, Any], number: int) -> None:
    supervisor.send(int(who["pid"]), who["start_time"], number)
