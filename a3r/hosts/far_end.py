"""What runs on the other side of an SSH connection. It is sent there as text, so it knows nothing but Python's library.

Every answer is a line ``A3R:{json}`` on stdout: shells that greet must not confuse it. Secrets come on stdin and go to
0600 files, never to a command line. Imported here only by its sender and by tests.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MARK = "A3R:"
LOOK_S = 1.0
FIRST_BACKOFF_S = 2.0
MAX_BACKOFF_S = 60.0
LEAVE_S = 20.0
TAIL = 1500
INSTALL_S = 3600.0
LONGEST_SOCKET = 100
"""Bytes of a Unix socket's path; the system's limit is 107."""


def main(action: str, spec: Json) -> None:
    """Do one thing and answer; a failure that is understood is an answer too."""
    known: list[Callable[[Json], Json]] = [probe, install, configure, keep, stop, run]
    actions = {one.__name__: one for one in known}
    try:
        tell({"ok": True, **actions[action](spec)})
    except Refused as error:
        tell({"ok": False, "error": str(error), "hint": error.hint})
    except OSError as error:
        tell({"ok": False, "error": str(error), "hint": "See to the folder's rights and space."})


class Refused(Exception):
    """It can not be done here; ``hint`` says what would help."""

    def __init__(self, message: str, hint: str = "") -> None:
        """Both are shown to the person."""
        super().__init__(message)
        self.hint = hint


def tell(answer: Json) -> None:
    """One line of JSON."""
    sys.stdout.write(MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()


# -- looking -------------------------------------------------------------------------------------------------------


def probe(spec: Json) -> Json:
    """What is here. Changes nothing."""
    folder = place(spec["folder"])
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    usage = shutil.disk_usage(existing)
    return {
        "host": socket.gethostname(),
        "user": os.environ.get("USER") or str(os.getuid()),
        "folder": str(folder),
        "time": time.time(),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "system": platform.platform(),
        "a3r": installed(spec.get("worker_python") or sys.executable),
        "writable": os.access(existing, os.W_OK),
        "file_system": file_system(existing),
        "disk_free_bytes": usage.free,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "tmux": tmux_version(),
        "nvidia": has_nvidia(),
        "token_sha256": token_hash(folder),
        "worker": worker(folder),
    }


def place(text: str) -> Path:
    """The folder on this host, absolute; ``~`` is the home."""
    folder = Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises where there is no such user
    return folder if folder.is_absolute() else Path.home() / folder


TREE = """
import hashlib, importlib.util, json, pathlib, sys
from importlib import metadata
parts = []
for name in ("a3r", "swarm"):
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        sys.exit(0)
    root = pathlib.Path(list(found.submodule_search_locations)[0])
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            sha = hashlib.sha256(path.read_bytes()).hexdigest()
            parts.append([name + "/" + path.relative_to(root).as_posix(), sha])
version = metadata.version("a3r")
tree = hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()
print(json.dumps({"version": version, "tree": tree}))
"""


def installed(python: str) -> Json | None:
    """Version and tree hash of the a3r that ``python`` imports; None without one (or without that interpreter)."""
    try:
        # From "/": a checkout in the current folder is not what a worker would import.
        done = subprocess.run(
            [python, "-c", TREE], capture_output=True, timeout=60, check=False, cwd="/"
        )
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def tmux_version() -> str:
    """Empty without tmux."""
    path = shutil.which("tmux")
    if path is None:
        return ""
    done = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() or path


def has_nvidia() -> bool:
    """Whether the driver lists a device."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return False
    try:
        done = subprocess.run([path, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.startswith("GPU ")


def file_system(path: Path) -> str:
    """Type of the file system, e.g. ``ext4``; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4]
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def token_hash(folder: Path) -> str:
    """sha256 of the worker's token; empty without one."""
    try:
        return hashlib.sha256((folder / "worker.token").read_bytes().strip()).hexdigest()
    except OSError:
        return ""


# -- the worker ----------------------------------------------------------------------------------------------------


def worker(folder: Path) -> Json:
    """``alive``, ``pid`` (0: not on file yet), ``id``: read from the lock that a worker holds, never from a pid alone."""
    home = folder / ".a3r" / "worker"
    try:
        record: Json = json.loads((home / "worker.json").read_text("utf-8"))
    except (OSError, ValueError):
        record = dict[str, Any]()
    alive = is_locked(home / "lock")
    return {
        "alive": alive,
        "pid": int(record.get("pid", 0)) if alive else 0,
        "id": str(record.get("worker_id", "")),
    }


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock at this moment."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        return False
    return False


def worker_argv(folder: Path, spec: Json) -> list[str]:
    """The worker's command. Its token is in a file."""
    argv = [spec["python"], "-m", "a3r", "worker", "start"]
    argv += ["--workspace", str(folder / ".a3r"), "--token-file", str(folder / "worker.token")]
    argv += ["--hub", spec["hub"] or f"unix:{folder / 'hub.sock'}"]
    if spec.get("ca"):
        argv += ["--ca-file", str(folder / "hub-ca.pem")]
    if spec.get("gpus"):
        argv += ["--gpus", spec["gpus"]]
    if spec.get("slots") is not None:
        argv += ["--slots", str(spec["slots"])]
    return argv


def start_worker(folder: Path, argv: list[str], name: str) -> None:
    """Start it so that it outlives this connection: as a unit of the user's own systemd where that stays, else detached."""
    log = folder / "worker.log"
    if lingers():
        command = unit_argv(f"a3r-worker-{name}-{int(time.time())}", log, argv)
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
        if done.returncode == 0:
            return
    with log.open("ab") as output:
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )


def unit_argv(unit: str, log: Path, argv: list[str]) -> list[str]:
    """The command that runs ``argv`` as a unit of the user's systemd."""
    # Attempts outlive the worker: its end, or one of them out of memory, must not end the rest of the unit.
    rules = ("KillMode=process", "OOMPolicy=continue", "TasksMax=infinity")
    command = ["systemd-run", "--user", "--quiet", "--collect", f"--unit={unit}"]
    command += [f"--property={rule}" for rule in rules]
    path = os.environ.get("PATH", "/usr/bin:/bin")
    command += [f"--setenv=PATH={path}", "--setenv=PYTHONUNBUFFERED=1"]
    # The log's path is $0 of a shell: systemd would expand what is in a property.
    return [*command, "--", "sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log), *argv]


def lingers() -> bool:
    """Whether the user's systemd outlives the user's last session; if not, it would take the worker with it."""
    if shutil.which("systemd-run") is None or shutil.which("loginctl") is None:
        return False
    if not os.environ.get("XDG_RUNTIME_DIR"):
        return False
    ask = ["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "yes"


def end_worker(folder: Path, *, with_attempts: bool, timeout_s: float) -> bool:
    """Ask the worker to leave and wait; True when none is there any more. Its attempts go on unless they shall end too."""
    ends = time.monotonic() + timeout_s
    found = worker(folder)
    if found["alive"] and found["pid"]:
        # The lock is held at this moment and names its holder.
        os.kill(found["pid"], signal.SIGTERM)
        if with_attempts:
            time.sleep(0.3)
            if worker(folder)["pid"] == found["pid"]:
                os.kill(found["pid"], signal.SIGTERM)
    while worker(folder)["alive"] and time.monotonic() < ends:
        time.sleep(0.1)
    return not worker(folder)["alive"]


def log_tail(path: Path) -> str:
    """The end of a log; empty without one."""
    try:
        return path.read_bytes()[-TAIL:].decode("utf-8", "replace")
    except OSError:
        return ""


# -- setting up ----------------------------------------------------------------------------------------------------


def install(spec: Json) -> Json:
    """Make the folder and, from a wheel in ``spec``, an environment of this very a3r. Instant when it is there."""
    folder = place(spec["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # the socket that leads to the hub will lie in it
    # Bytes: the limit of the system counts them, and a name can hold several in a letter.
    if len(os.fsencode(str(folder / "link-00000000.sock"))) > LONGEST_SOCKET:
        raise Refused(f"The path {str(folder)!r} is too long.", "Give a shorter one: --folder.")
    if not spec.get("wheel"):
        return {"folder": str(folder), "python": spec["python"], "made": False}
    venv = folder / "venvs" / str(spec["stamp"])[:12]
    python = str(venv / "bin" / "python")
    done = venv / "installed"
    if done.exists():
        return {"folder": str(folder), "python": python, "made": False}
    log = folder / "install.log"
    log.write_bytes(b"")
    make_venv(venv, log)
    wheel = folder / str(spec["wheel_name"])
    pins = folder / "pins.txt"
    wheel.write_bytes(base64.b64decode(spec["wheel"]))
    pins.write_text(spec["pins"], "utf-8")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    pip += ["--progress-bar", "off", *spec.get("pip", [])]
    torch = next((p for p in spec["pins"].split() if p.startswith("torch==")), "")
    if torch and sys.platform == "linux" and not has_nvidia():
        # Alone and from that index only: another index beside the usual one would be asked for every package. Where it can
        # not be reached, the usual index has the last word, and may bring CUDA's libraries for nothing.
        logged([*pip, "--retries", "1", "--no-deps", "--index-url", spec["cpu_index"], torch], log)
    if not logged([*pip, "-c", str(pins), f"{wheel}{spec['extras']}"], log):
        raise Refused(
            f"pip could not install a3r there:\n{log_tail(log)}",
            f"The whole log is {log} on the host; --python names an interpreter that has a3r already.",
        )
    done.write_text("", "utf-8")
    prune(venv)
    return {"folder": str(folder), "python": python, "made": True}


def make_venv(venv: Path, log: Path) -> None:
    """A fresh environment of this interpreter, with pip."""
    if not logged([sys.executable, "-m", "venv", "--clear", str(venv)], log):
        raise Refused(
            f"'{sys.executable} -m venv' does not work there:\n{log_tail(log)}",
            "On Debian or Ubuntu: apt-get install python3-venv. Or name another interpreter with --python.",
        )


def logged(argv: list[str], log: Path) -> bool:
    """Run a command with its output in the log; True when it went well."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(argv)}\n".encode())
        output.flush()
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=INSTALL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            output.write(f"{error}\n".encode())
            return False
    return done.returncode == 0


def prune(venv: Path) -> None:
    """Keep the newest environment and the one before it, in which attempts may still run."""
    others = sorted(
        (p for p in venv.parent.iterdir() if p != venv), key=lambda p: p.stat().st_mtime
    )
    for old in others[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def configure(spec: Json) -> Json:
    """File the worker's token and the hub's certificates, and allow a worker here."""
    folder = place(spec["folder"])
    for name, text in (("worker.token", spec.get("token")), ("hub-ca.pem", spec.get("ca_pem"))):
        if text:
            private(folder / name, text)
    (folder / "stopped").unlink(missing_ok=True)
    return {"worker": worker(folder)}


def private(path: Path, text: str) -> None:
    """Write a file that only this user can ever read, atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def stop(spec: Json) -> Json:
    """End the worker here and let no keeper start another; with ``attempts`` end those too, with ``delete`` the files."""
    folder = place(spec["folder"])
    if not folder.exists():
        return {"ended": True, "deleted": False}
    (folder / "stopped").write_text("", "utf-8")
    timeout_s = 90.0 if spec.get("attempts") else LEAVE_S
    ended = end_worker(folder, with_attempts=bool(spec.get("attempts")), timeout_s=timeout_s)
    (folder / "worker.token").unlink(missing_ok=True)
    deleted = bool(spec.get("delete")) and ended
    if deleted:
        shutil.rmtree(folder, ignore_errors=True)
    return {"ended": ended, "deleted": deleted}


def run(spec: Json) -> Json:
    """Run a command of ours there, bounded in time; its output is the answer."""
    folder = place(spec["folder"])
    env = {**os.environ, **spec.get("env", {})}
    argv = [part.replace("{folder}", str(folder)) for part in spec["argv"]]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=spec["timeout_s"],
            check=False,
            cwd=folder if folder.is_dir() else "/",
            env=env,
        )
    except subprocess.TimeoutExpired:
        return {"code": -1, "out": "", "err": f"it took longer than {spec['timeout_s']:.0f} s"}
    out, err = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    return {"code": done.returncode, "out": out[-20_000:], "err": err[-TAIL:]}


# -- keeping -------------------------------------------------------------------------------------------------------


def keep(spec: Json) -> Json:
    """Hold the way back open and keep a worker at work until stdin ends. The worker stays when the link goes."""
    folder = place(spec["folder"])
    me = f"{os.getpid()}-{time.time()}"
    private(folder / "keeper", me)
    if spec.get("socket"):
        # Bound under a name of its own, then put in place: a link that broke may hold the former file for hours.
        Path(spec["socket"]).replace(folder / "hub.sock")
    keeper = Keeper(folder, spec)
    tell({"event": "up"})
    while not gone():
        if (folder / "keeper").read_text("utf-8") != me:
            return {"event": "replaced"}
        keeper.look(time.monotonic())
    return {"event": "closed"}


def gone() -> bool:
    """Wait a moment; whether the near side has hung up."""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], LOOK_S)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


class Keeper:
    """Starts the worker when none is there, and anew when it was started otherwise than it is wanted now."""

    def __init__(self, folder: Path, spec: Json) -> None:
        """``spec['work']``: whether a worker is wanted; without it, one that leaves is only reported."""
        self._folder, self._spec = folder, spec
        self._argv = worker_argv(folder, spec)
        self._told: Json | None = None
        self._backoff_s, self._not_before = FIRST_BACKOFF_S, 0.0
        self._started_at = 0.0

    def look(self, now: float) -> None:
        """One look; tells what has changed."""
        found = worker(self._folder)
        wanted = self._spec["work"] and not (self._folder / "stopped").exists()
        note = ""
        if found["alive"] and wanted and self._outdated():
            end_worker(self._folder, with_attempts=False, timeout_s=LEAVE_S)
            found = worker(self._folder)
        if found["alive"]:
            if self._started_at and now - self._started_at > MAX_BACKOFF_S:
                self._backoff_s = FIRST_BACKOFF_S
        elif wanted and now >= self._not_before:
            note = log_tail(self._folder / "worker.log") if self._started_at else ""
            self._start(now)
        self._tell({**found, "wanted": wanted, "note": note})

    def _start(self, now: float) -> None:
        private(self._folder / "command.json", json.dumps(self._argv))
        start_worker(self._folder, self._argv, self._spec["name"])
        self._started_at = now
        self._not_before = now + self._backoff_s
        self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)

    def _outdated(self) -> bool:
        try:
            return json.loads((self._folder / "command.json").read_text("utf-8")) != self._argv
        except (OSError, ValueError):
            return True

    def _tell(self, state: Json) -> None:
        if state != self._told:
            self._told = state
            tell({"event": "worker", **state})
