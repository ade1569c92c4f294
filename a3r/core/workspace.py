"""The workspace: a folder ``.a3r`` that is found upward from where one stands, as git finds ``.git``."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from a3r.core.errors import WorkspaceError

FOLDER = ".a3r"
HOME_VARIABLE = "A3R_HOME"

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs"}
)
"""Where SQLite's write-ahead log is not safe: its shared memory needs one machine (sqlite.org/wal.html)."""


@dataclass(frozen=True)
class Workspace:
    """Paths of one workspace. ``root`` is the ``.a3r`` folder itself, absolute."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "a3r.db"

    @property
    def daemon(self) -> Path:
        """Lock, ready record, tokens and log of the daemon."""
        return self.root / "daemon"

    @property
    def runs(self) -> Path:
        """The local worker's attempt folders."""
        return self.root / "runs"

    @property
    def artifacts(self) -> Path:
        """Packed client folders, ``<sha256>.tar``; the store writes them."""
        return self.root / "artifacts"

    @property
    def logs(self) -> Path:
        """``<attempt>/<name>.log`` as workers sent them; the store writes them."""
        return self.root / "logs"

    @property
    def config(self) -> Path:
        """Settings of this workspace (it need not exist); see ``a3r.core.settings``."""
        return self.root / "config.yaml"

    @property
    def worker(self) -> Path:
        """The local worker's own records."""
        return self.root / "worker"

    @property
    def project(self) -> Path:
        """The folder that holds ``.a3r``: relative goals and ``reports/`` belong here."""
        return self.root.parent

    @classmethod
    def create(cls, path: Path) -> Workspace:
        """Return the workspace whose ``.a3r`` folder is ``path``, made when it is missing. Safe to call twice.

        Raises:
            WorkspaceError: read-only, full, not a folder, or on a network file system.
        """
        root = path.expanduser().absolute()
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise WorkspaceError(
                f"The workspace {str(root)!r} cannot be made: {error.strerror}.",
                hint=f"Go to a writable folder, or set {HOME_VARIABLE} to one.",
            ) from error
        ignore = root / ".gitignore"
        workspace = cls(root)
        workspace.require_usable()
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        return workspace

    def require_usable(self) -> None:
        """Raise ``WorkspaceError`` when the database cannot live here."""
        kind = file_system(self.root)
        if kind in NETWORK_FILE_SYSTEMS:
            raise WorkspaceError(
                f"The workspace {str(self.root)!r} is on a network file system ({kind}); SQLite's log is not safe there.",
                hint=f"Set {HOME_VARIABLE} to a folder on a local disk.",
            )
        probe = self.root / f".probe.{secrets.token_hex(4)}"
        try:
            try:
                probe.write_bytes(b"x" * 4096)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise WorkspaceError(
                f"The workspace {str(self.root)!r} cannot be written: {error.strerror}.",
                hint=f"Free space or permissions are missing; {HOME_VARIABLE} can name another folder.",
            ) from error


def find_workspace(start: Path, env: Mapping[str, str], *, usable: bool = True) -> Workspace:
    """Return the workspace named by ``A3R_HOME``, else the nearest ``.a3r`` in ``start`` or above.

    ``usable``: only one that can be written; False when whoever asks writes nothing there itself.

    Raises:
        WorkspaceError: there is none (``details["missing"]``), or it cannot be used.
    """
    named = env.get(HOME_VARIABLE, "").strip()
    folders = [start.absolute(), *start.absolute().parents]
    candidates = [Path(named).expanduser().absolute()] if named else [p / FOLDER for p in folders]
    for root in candidates:
        if root.is_dir():
            workspace = Workspace(root)
            if usable:
                workspace.require_usable()
            return workspace
    where = f"{HOME_VARIABLE} names {named!r}, which" if named else f"{str(start)!r}"
    raise WorkspaceError(
        f"{where} has no workspace yet." if not named else f"{where} does not exist.",
        hint="'a3r campaign start goal.md' makes one; or go to the folder of your project.",
        missing=True,
    )


def file_system(path: Path) -> str:
    """Return the type of the file system that ``path`` lies on, e.g. ``ext4``; empty when the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    real = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = _unescaped(left.split()[4])
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def _unescaped(mount: str) -> str:
    # The kernel writes blanks of a path as octal (``\040``) and leaves its other bytes alone (proc_pid_mountinfo(5)).
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount)
