"""Keeps one process of an attempt: starts it, copies its output, writes down what became of it, leaves nothing behind.

Runs as a script, ``python supervisor.py SPEC.json``, in one file and with the standard library alone, so that nothing of
an experiment's environment can break it. It knows nothing of attempts, hubs or tmux. What it writes into ``record_dir``:

- ``claim``           made with O_EXCL; whoever makes it first owns this start (a second supervisor leaves at once)
- ``start.json``      pid and start time (from /proc) of the supervisor and of the child, where its output begins in the log
- ``heartbeat.json``  each second; with everybody who descends from the child, so that they are found when the supervisor is gone
- ``exit.json``       code or signal, who asked, CPU and wall seconds. No exit record = the supervisor died: exit unknown.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROTATE_BYTES = 64 * 1024 * 1024
HEARTBEAT_S = 1.0
GONE_S = 60.0
"""How long a folder of records may be away before it counts as deleted; a spec may say otherwise (``gone_s``)."""
PR_SET_CHILD_SUBREAPER = 36
NONCE = "A3R_NONCE"
PROCESS = "A3R_PROCESS"
"""Names one start of one process within the attempt: ``client.2``."""
DETACH = "A3R_DETACH"
"""Set by a launcher without a terminal: the supervisor goes on in the background and the launcher returns at once."""
PROC = Path("/proc")


# --- whose process is it ---------------------------------------------------------------------------------------


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone or a zombie. With the pid it names one process."""
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _alive_elsewhere(pid)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _alive_elsewhere(pid: int) -> int | None:
    """Without /proc there is no start time: 0 for a living process."""
    if PROC.joinpath("self").exists():
        return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


def send(pid: int, started: int | None, number: int) -> bool:
    """Signal exactly the process (pid, start time); False when it is gone. A pid that was reused is left alone."""
    if started is None:
        return False
    try:
        if not hasattr(os, "pidfd_open"):
            if start_time(pid) == started:
                os.kill(pid, number)
            return start_time(pid) == started
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The handle pins the process: what is checked now is what gets the signal.
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def owned(
    marks: dict[str, str], session: int | None = None, ancestor: int | None = None
) -> dict[int, int]:
    """Processes (pid -> start time) whose environment holds all ``marks``, or in ``session``, or below ``ancestor``."""
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    found: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*"):
        pid = int(entry.name)
        started = start_time(pid)
        if started is None or pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            ours = os.getsid(pid) == session or (ancestor is not None and _below(pid, ancestor))
            if not ours and wanted:
                ours = wanted <= set((entry / "environ").read_bytes().split(b"\0"))
            if ours:
                found[pid] = started
    return found


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        stat = (PROC / str(pid) / "stat").read_bytes()
        pid = int(stat.rpartition(b")")[2].split()[1])
    return pid == ancestor


def descendants(pid: int) -> dict[int, int]:
    """Processes (pid -> start time) below ``pid``; those whose parent is gone are missing unless somebody adopted them."""
    found: dict[int, int] = {}
    todo = [pid]
    while todo:
        for child in _children(todo.pop()):
            started = start_time(child)
            if started is not None and child not in found:
                found[child] = started
                todo.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for tasks in (PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):  # it ends while we look
            found += [int(text) for text in tasks.read_bytes().split()]
    return found


def end_all(
    find: Callable[[], dict[int, int]], grace_s: float, reap: Callable[[], None] = lambda: None
) -> int:
    """TERM, then KILL after ``grace_s``, every process that ``find`` finds; returns how many there were."""
    seen: dict[int, int] = {}
    deadline = time.monotonic() + grace_s
    while left := find():
        late = time.monotonic() > deadline
        for pid, started in left.items():
            if late or pid not in seen:
                send(pid, started, signal.SIGKILL if late else signal.SIGTERM)
        seen |= left
        if time.monotonic() > deadline + 5.0:
            break  # in uninterruptible sleep: nothing more can be done from here
        time.sleep(0.02)
        reap()
    return len(seen)


def oom_kills() -> int:
    """How often the kernel has ended a process of this host (or of our cgroup) for lack of memory; 0 when it does not say."""
    for path in (PROC / "vmstat", Path("/sys/fs/cgroup/memory.events")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in path.read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


# --- files -----------------------------------------------------------------------------------------------------


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write atomically and durably: a reader sees the whole record or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


class Log:
    """Raw bytes to a file. The file keeps the first 64 MiB; what follows goes to ``.1``, and of that the last 64 to 128 MiB stay."""

    def __init__(self, path: Path, limit: int = ROTATE_BYTES) -> None:
        self.path, self.limit, self.lost = path, limit, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._more = path.with_name(path.name + ".1")
        self._file = (self._more if self._more.exists() else path).open("ab", buffering=0)
        self.offset = self._file.tell()

    def write(self, data: bytes) -> None:
        """Append; a full disk loses bytes (counted in ``lost``), never the child."""
        try:
            if self._file.tell() + len(data) > self.limit:
                self._rotate()
            self._file.write(data)
        except OSError:
            self.lost += len(data)

    def _rotate(self) -> None:
        if Path(self._file.name) == self.path:
            self._file.write(f"\n--- a3r: continues in {self._more.name} ---\n".encode())
        else:
            self._more.replace(self._more.with_name(self.path.name + ".2"))
        self._file.close()
        self._file = self._more.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# --- the supervisor --------------------------------------------------------------------------------------------


class Supervisor:
    """One child from start to end."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.records = Path(spec["record_dir"])
        self.marks = {NONCE: spec["nonce"], PROCESS: spec["label"]}
        self.grace_s = float(spec.get("grace_s", 5.0))
        self.log = Log(Path(spec["log"]), int(spec.get("rotate_bytes", ROTATE_BYTES)))
        self.asked_by: str | None = None
        self.status: int | None = None
        """Wait status of the child, None while it runs."""
        self.started_at = time.time()
        self._begun = time.monotonic()
        self._kill_at: float | None = None
        self._mirror = True
        self._oom_kills = 0
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start the child, watch it to its end, clean up, write the exit record."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        self._mark("begin")
        self._oom_kills = oom_kills()
        error = self._spawn()
        if self._child is not None:
            self._watch(self._child)
        session = self._child.pid if self._child else None
        leftovers = end_all(
            lambda: owned(self.marks, session, os.getpid()), self.grace_s, self._reap
        )
        if self._child is not None:
            self._drain(self._child)
        self._finish(error, leftovers)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self._ask(signal.Signals(number).name)

    def _ask(self, who: str) -> None:
        """Ask the child to end: TERM to it first, so that it can end its own children in order; KILL after the grace."""
        if self.asked_by is None:
            self.asked_by, self._kill_at = who, time.monotonic() + self.grace_s
            if self._child is not None:
                send(self._child.pid, start_time(self._child.pid), signal.SIGTERM)

    def _spawn(self) -> str:
        """Start the child in a session of its own; returns why that was not possible, or nothing."""
        spec = self.spec
        try:
            self._child = child = subprocess.Popen(
                spec["argv"],
                cwd=spec["cwd"],
                env={**spec["env"], **self._secrets(), **self.marks},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as failure:
            self.log.write(f"--- a3r: cannot start {spec['argv'][0]!r}: {failure} ---\n".encode())
            return f"cannot start {spec['argv'][0]!r}: {failure}"
        try:
            self._write_start(child.pid)
        except OSError as failure:
            self._ask("no_start_record")  # a process that nobody could find again must not run
            return f"cannot write start.json: {failure}"
        if self.asked_by is not None:  # while it was being started
            send(child.pid, start_time(child.pid), signal.SIGTERM)
        return ""

    def _secrets(self) -> dict[str, str]:
        """Variables that must not stay on the disk: their file is read once and removed."""
        path = self.spec.get("secret_file")
        if not path:
            return {}
        secrets = json.loads(Path(path).read_text(encoding="utf-8"))
        Path(path).unlink()
        return secrets

    def _write_start(self, child_pid: int) -> None:
        me = os.getpid()
        record = {
            "supervisor": {"pid": me, "start_time": start_time(me)},
            "child": {"pid": child_pid, "start_time": start_time(child_pid)},
            "started_at": self.started_at,
            "log_offset": self.log.offset,
            "nonce": self.spec["nonce"],
            "label": self.spec["label"],
        }
        write_json(self.records / "start.json", record)

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        limit = self.spec.get("max_time_s")
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            beat = 0.0
            while self.status is None:
                now = time.monotonic()
                if now >= beat:
                    self._heartbeat(child.pid)
                    beat = now + HEARTBEAT_S
                if limit is not None and now - self._begun > limit:
                    self._ask("max_time")
                if self._kill_at is not None and now > self._kill_at:
                    send(child.pid, start_time(child.pid), signal.SIGKILL)
                # A closed output only wakes us once more; a child's end is seen within the time-out.
                if selector.get_map() and selector.select(0.1):
                    if self._drain(child):
                        selector.unregister(child.stdout)
                elif not selector.get_map():
                    time.sleep(0.05)
                self._reap()
        self._drain(child)

    def _drain(self, child: subprocess.Popen[bytes]) -> bool:
        """Copy what is there to read; True at the end of the output."""
        assert child.stdout is not None
        for _ in range(64):  # then look at the clock again: a child may write for ever
            try:
                data = os.read(child.stdout.fileno(), 65536)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.log.write(data)
            self._show(data)
        return False

    def _show(self, data: bytes) -> None:
        """Copy to our own terminal, which may be gone, or stopped with Ctrl-S; neither may hold the child up."""
        try:
            while self._mirror and data:
                data = data[os.write(1, data) :]
        except BlockingIOError:
            pass
        except OSError:
            self._mirror = False

    def _reap(self) -> None:
        """Collect the child and, as their subreaper, its orphans."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if self._child is not None and pid == self._child.pid:
                    self.status = status
                    self._child.returncode = os.waitstatus_to_exitcode(status)

    def _heartbeat(self, child_pid: int) -> None:
        # As their subreaper it has everybody below it, whatever they did to their session, parent and environment.
        family = {str(pid): started for pid, started in descendants(os.getpid()).items()}
        beat = {
            "at": time.time(),
            "child_pid": child_pid,
            "log_lost_bytes": self.log.lost,
            "family": family,
        }
        with contextlib.suppress(OSError):
            write_json(self.records / "heartbeat.json", beat)

    def _mark(self, what: str, more: str = "") -> None:
        line = f"--- a3r {what} {self.spec['label']} {self.spec['nonce']} {time.time():.3f}{more} ---\n"
        self.log.write(line.encode())

    def _finish(self, error: str, leftovers: int) -> None:
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        record = {
            "code": code if code is None or code >= 0 else None,
            "signal": signal.Signals(-code).name if code is not None and code < 0 else None,
            "error": error,
            "asked_by": self.asked_by,
            "timed_out": self.asked_by == "max_time",
            "leftovers": leftovers,
            "oom_kills": max(0, oom_kills() - self._oom_kills),
            "started_at": self.started_at,
            "ended_at": time.time(),
            "wall_s": time.monotonic() - self._begun,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "log_lost_bytes": self.log.lost,
            "nonce": self.spec["nonce"],
            "label": self.spec["label"],
        }
        self._mark("end", f" code={record['code']} signal={record['signal']}")
        self.log.close()
        self._keep(record)

    def _keep(self, record: dict[str, Any]) -> None:
        """Write the exit record, however long that takes: a full disk must not turn a known exit into an unknown one.

        Only a folder that was deleted, and stays so, is given up: nobody will look there.
        """
        here = time.monotonic()
        while time.monotonic() - here < self.spec.get("gone_s", GONE_S):
            try:
                write_json(self.records / "exit.json", record)
                return
            except FileNotFoundError:
                pass
            except OSError:
                here = time.monotonic()
            time.sleep(1.0)


def claim(record_dir: Path) -> bool:
    """Take this start; False when somebody else (another supervisor, or a worker that gave it up) has it."""
    try:
        os.close(os.open(record_dir / "claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _stay(_number: int, _frame: FrameType | None) -> None:
    """The terminal went away; the child does not need it."""


def _settle() -> None:
    """Leave the launcher: own session, adopt orphans, survive the terminal."""
    if os.environ.get(DETACH) and os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):  # the leader of a terminal's pane has one already
        os.setsid()
    # A handler, not SIG_IGN: an ignored signal would be inherited by the child.
    signal.signal(signal.SIGHUP, _stay)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(OSError):
        os.set_blocking(1, False)


def main() -> None:
    """Read the spec named in argv and supervise."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if claim(Path(spec["record_dir"])):
        _settle()
        Supervisor(spec).run()


if __name__ == "__main__":
    main()
