"""What is too large for rows and lies beside the database: logs by offset, artifacts by hash."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from a3r.core.errors import Conflict, NotFound, StoreError
from a3r.core.hashing import bytes_hash
from a3r.core.ports import Clock
from a3r.store.book import Book
from a3r.store.engine import Database
from a3r.store.fencing import hold, holds

_LOG_NAME = re.compile(r"[a-z0-9][A-Za-z0-9_-]{0,63}(\.tail)?")
"""``client``, ``server-Judge``; and ``client.tail``, the end of one that was too long to be kept whole."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileBook(Book):
    """What the Store keeps as files. The length of a log file is its offset: nothing can disagree with it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._appending = threading.Lock()

    def add_log_chunk(
        self, attempt_id: str, fencing: int, name: str, offset: int, data: bytes
    ) -> int:
        """Append raw bytes at ``offset``; what is there already is skipped. Return the log's new length.

        Raises:
            Conflict: stale token; a bad name; or a gap (``details["length"]`` says from where to send).
        """
        what = f"log {name!r}"
        payload: dict[str, Any] = {"bytes": len(data), "offset": offset}
        # Looked up without the lock: a log is no row, and only a refusal is written down.
        with self._db.read() as session:
            held = holds(session, attempt_id, fencing)
        if not held:
            with self._db.write() as session:
                hold(session, attempt_id, fencing, self._clock.time(), what=what, payload=payload)
        path = self.log_path(attempt_id, name)
        with self._appending, _disk_errors(path):
            length = path.stat().st_size if path.exists() else 0
            if not 0 <= offset <= length:
                raise Conflict(
                    f"log {name!r} of attempt {attempt_id!r} has {length} bytes, a chunk at {offset} leaves a gap",
                    hint=f"send from offset {length}",
                    length=length,
                )
            fresh = data[length - offset :]
            if fresh:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(fresh)
        if fresh:
            self._db.changed.notify()
        return length + len(fresh)

    def log_path(self, attempt_id: str, name: str) -> Path:
        """Where a log lies (it need not exist).

        Raises:
            Conflict: a name that is no plain word.
        """
        for part in (attempt_id, name):
            if not _LOG_NAME.fullmatch(part):
                raise Conflict(
                    f"{part!r} cannot name a log", hint="use letters, digits, '-' and '_'"
                )
        return self.folder / "logs" / attempt_id / f"{name}.log"

    def log_names(self, attempt_id: str) -> list[str]:
        """Names of the attempt's logs, sorted."""
        folder = self.log_path(attempt_id, "any").parent
        return sorted(path.stem for path in folder.glob("*.log"))

    def read_log(self, attempt_id: str, name: str, offset: int, limit: int) -> bytes:
        """Up to ``limit`` raw bytes from ``offset``; a negative offset counts from the end; empty past the end.

        Raises:
            NotFound: the attempt has no such log (yet).
        """
        path = self.log_path(attempt_id, name)
        if not path.exists():
            there = ", ".join(self.log_names(attempt_id)) or "none yet"
            raise NotFound(f"attempt {attempt_id!r} has no log {name!r}", hint=f"logs: {there}")
        with _disk_errors(path), path.open("rb") as file:
            length = path.stat().st_size
            file.seek(max(0, length + offset) if offset < 0 else offset)
            return file.read(max(0, limit))

    def put_artifact(self, data: bytes) -> str:
        """Keep the bytes and return their sha256 (hex). Safe to repeat."""
        sha256 = bytes_hash(data)
        path = self._artifact_path(sha256)
        with _disk_errors(path):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                # Whole or not at all: a crash leaves a .part file, never half an artifact under its name.
                with tempfile.NamedTemporaryFile(
                    dir=path.parent, suffix=".part", delete=False
                ) as part:
                    part.write(data)
                Path(part.name).replace(path)
        return sha256

    def artifact(self, sha256: str) -> bytes:
        """The bytes with this hash.

        Raises:
            NotFound: never stored.
            StoreError: the file was changed on disk.
        """
        path = self._artifact_path(sha256)
        if not path.exists():
            raise NotFound(f"no artifact {sha256!r}", sha256=sha256)
        with _disk_errors(path):
            data = path.read_bytes()
        if bytes_hash(data) != sha256:
            raise StoreError(
                f"artifact {str(path)!r} was changed on disk: its hash is no longer its name",
                hint="restore the file from a copy, or start the campaign again",
            )
        return data

    def _artifact_path(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise NotFound(f"{sha256!r} is no sha256", hint="64 lower-case hex digits")
        return self.folder / "artifacts" / f"{sha256}.tar"


class _disk_errors:  # noqa: N801  (used as a function: ``with _disk_errors(path):``)
    """Turn a failing disk into ``StoreError``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StoreError(
                f"{str(self._path)!r} cannot be written or read: {error.strerror}",
                hint="check free space and permissions of the .a3r folder, then repeat",
            ) from error
