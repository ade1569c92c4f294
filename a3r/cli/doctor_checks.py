"""What the doctor looks at. Each check is quick, changes nothing, and answers in words."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from a3r.core.errors import A3RError, WorkspaceError
from a3r.core.workspace import NETWORK_FILE_SYSTEMS, Workspace, file_system, find_workspace

Level = Literal["ok", "warn", "fail"]

TORCH_TIMEOUT_S = 8.0
LITTLE_DISK = 2 * 2**30
NO_DISK = 200 * 2**20
FEW_FILES = 512
SILENT_S = 30.0


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    level: Level
    detail: str
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def guarded(check: Callable[[], Check]) -> Check:
    """Run one check; one that itself breaks is a failure with its reason."""
    name = check.__name__.replace("_", " ")
    try:
        return check()
    except A3RError as error:
        return Check(name, "fail", error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - the doctor tells, whatever is broken
        return Check(name, "fail", f"{type(error).__name__}: {error}", "Report this.")


def python() -> Check:
    """Its version."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"{version} ({sys.platform})")


def torch() -> Check:
    """Whether engines can import torch; in a process of its own, as engines do."""
    code = "import torch; print(torch.__version__, torch.cuda.device_count())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(
            "torch", "warn", f"its import took over {TORCH_TIMEOUT_S:.0f} s", "A slow or busy disk?"
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Check("torch", "fail", last, "'make setup' installs it: pip install 'a3r[train]'.")
    version, devices = done.stdout.split()
    return Check("torch", "ok", f"{version}, {devices} CUDA device(s)")


def tmux() -> Check:
    """Whether runs can be shown in windows."""
    path = shutil.which("tmux")
    if path is None:
        hint = "Runs work without it; 'a3r run attach' needs it (apt-get install tmux)."
        return Check("tmux", "warn", "not found", hint)
    done = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=5, check=False)
    return Check("tmux", "ok", done.stdout.strip() or path)


def disk() -> Check:
    """Free space where the workspace is or would be."""
    folder = _existing(_workspace_root())
    free = shutil.disk_usage(folder).free
    words = f"{free / 2**30:.1f} GiB free at {folder}"
    hint = "Free some space: a campaign of the tiny model takes about 0.2 GiB."
    level: Level = "fail" if free < NO_DISK else "warn" if free < LITTLE_DISK else "ok"
    return Check("disk", level, words, hint)


def workspace() -> Check:
    """Whether there is one and it can be written."""
    found = _workspace()
    if found is not None:
        return Check("workspace", "ok", str(found.root))
    folder = _existing(_workspace_root())
    if not os.access(folder, os.W_OK):
        hint = "Go to a writable folder, or set A3R_HOME to one."
        return Check("workspace", "fail", f"none, and {folder} is read-only", hint)
    return Check("workspace", "ok", f"none yet; the first campaign makes {_workspace_root()}")


def network_file_system() -> Check:
    """Whether SQLite's log is safe here."""
    kind = file_system(_existing(_workspace_root()))
    if kind in NETWORK_FILE_SYSTEMS:
        return Check(
            "file system", "fail", f"{kind} (network)", "Set A3R_HOME to a folder on a local disk."
        )
    return Check("file system", "ok", kind or "unknown to this system")


def ports() -> Check:
    """Whether a local port can be had."""
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return Check("ports", "ok", f"127.0.0.1 gives free ports (e.g. {one.getsockname()[1]})")


def open_files() -> Check:
    """The limit on open files: each server, client and evaluator keeps some tens of connections."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    level: Level = "warn" if soft < FEW_FILES else "ok"
    return Check("open files", level, f"limit {soft} (hard {hard})", f"ulimit -n {2 * FEW_FILES}")


def database() -> Check:
    """Whether the database is there, whole and not from a newer a3r."""
    found = _workspace()
    if found is None or not found.database.exists():
        return Check("database", "ok", "none yet")
    from a3r.store.schema import VERSION

    uri = f"{found.database.as_uri()}?mode=ro"
    restore = "Restore a3r.db from a copy; reports under reports/ stay valid without it."
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=2)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            whole = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        return Check("database", "fail", f"cannot be read: {error}", restore)
    if version > VERSION:
        hint = "Use the newer a3r that wrote it, or set A3R_HOME to another folder."
        return Check("database", "fail", f"schema {version}, this a3r knows up to {VERSION}", hint)
    if whole != "ok":
        return Check("database", "fail", f"damaged: {whole}", restore)
    return Check(
        "database", "ok", f"schema {version}, {found.database.stat().st_size / 2**20:.1f} MiB"
    )


def daemon() -> Check:
    """Whether the daemon runs and answers, and how its leader and workers are."""
    found = _workspace()
    if found is None:
        return Check("daemon", "ok", "not running; commands start it")
    from a3r.cli.daemon.lock import holder, is_locked
    from a3r.cli.daemon.starting import find_daemon

    running = find_daemon(found)
    if running is None and is_locked(found.daemon):
        hint = "Wait a moment; if it stays so, 'a3r daemon stop'."
        return Check("daemon", "warn", f"pid {holder(found.daemon)} does not answer", hint)
    if running is None:
        return Check("daemon", "ok", "not running; commands start it")
    with running[1] as client:
        body = client.get("daemon")
    where = f"pid {body['pid']} at {running[0].url}"
    if body["leader"].get("last_error"):
        return Check(
            "daemon",
            "fail",
            f"{where}; the leader fails: {body['leader']['last_error']}",
            "See daemon.log.",
        )
    if all(w["silent_s"] > SILENT_S for w in body["workers"]):
        hint = f"See {found.daemon / 'worker.log'}; the daemon keeps trying to start one."
        return Check("daemon", "warn", f"{where}; no worker has spoken lately", hint)
    return Check("daemon", "ok", f"{where}, {len(body['workers'])} worker(s) known")


def language_model() -> Check:
    """Whether the leader's language model can be used, as far as that can be seen without a call."""
    from a3r.cli.daemon.language_model import models_of
    from a3r.core.settings import resolve_settings

    found = _workspace()
    settings = resolve_settings(env=os.environ, file=found.config if found else None)
    model, fallbacks = models_of(settings, os.environ)
    if model is None:
        return Check("language model", "ok", "none is set; the sweep planner needs none")
    if find_spec("litellm") is None:
        hint = "pip install 'a3r[llm]'"
        return Check("language model", "fail", f"{model.name}, but litellm is missing", hint)
    from a3r.adapters.litellm_model import missing_keys

    missing = [] if settings.llm_base_url else missing_keys(model.name)
    if missing:
        hint = f"Set {' or '.join(missing)}; a daemon that runs must be started anew to see it."
        return Check("language model", "fail", f"{model.name}, but no key is set", hint)
    price = model.price()
    if price is None:
        hint = "Set A3R_LLM_PRICE, e.g. '3,15' (USD a million prompt and completion tokens)."
        return Check("language model", "fail", f"{model.name}, but its price is not known", hint)
    million = f"{price.prompt_usd * 1e6:g} and {price.completion_usd * 1e6:g} USD a million tokens"
    others = f"; then {', '.join(m.name for m in fallbacks)}" if fallbacks else ""
    return Check("language model", "ok", f"{model.name}, {million}{others}")


CHECKS: tuple[Callable[[], Check], ...] = (
    python,
    torch,
    tmux,
    disk,
    workspace,
    network_file_system,
    ports,
    open_files,
    database,
    daemon,
    language_model,
)


def _workspace() -> Workspace | None:
    try:
        return find_workspace(Path.cwd(), os.environ)
    except WorkspaceError as error:
        if error.details.get("missing"):
            return None
        raise


def _workspace_root() -> Path:
    """The ``.a3r`` folder that is in use, or that would be made."""
    try:
        found = _workspace()
    except WorkspaceError:
        found = None
    if found is not None:
        return found.root
    named = os.environ.get("A3R_HOME", "").strip()
    return Path(named).expanduser().absolute() if named else Path.cwd() / ".a3r"


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())
