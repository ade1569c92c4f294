"""What a failing database file means, in words; one place for all of SQLite's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from a3r.core.errors import StoreError

_LOCKED = (
    "is locked",
    "another program holds it for long: `a3r doctor` shows which daemon runs here; close other tools that have it open",
)
_NO_WRITE = ("is read-only", "give this user write permission on the .a3r folder and its files")
_WORDS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _NO_WRITE,
    sqlite3.SQLITE_PERM: _NO_WRITE,
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the .a3r folder exists and that this user may write to it"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free disk space, then repeat the command; nothing committed is lost"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk and its free space, then repeat the command"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore a3r.db from a copy; reports under reports/ stay valid without it"),
    sqlite3.SQLITE_NOTADB: ("is not an a3r database", "restore a3r.db from a copy, or move it away to start an empty one"),
    sqlite3.SQLITE_CONSTRAINT: ("refuses a record that contradicts it", "this is a fault of a3r: report it with daemon.log"),
}  # fmt: skip


def store_failure(error: BaseException, path: Path) -> StoreError:
    """Translate by SQLite's primary result code; an unknown one keeps SQLite's own words."""
    code = getattr(error, "sqlite_errorcode", None)
    words, hint = _WORDS.get(
        code & 0xFF if isinstance(code, int) else -1,
        ("failed", "see daemon.log; what was committed before is safe"),
    )
    return StoreError(f"the database {str(path)!r} {words}: {error}", hint=hint)


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Raise ``StoreError`` in place of SQL's own errors; nothing of the transaction inside was kept."""
    try:
        yield
    except sqlite3.Error as err:
        raise store_failure(err, path) from err
    except PoolTimeout as err:
        raise StoreError(
            f"the database {str(path)!r} is locked: an earlier write of this program has not ended",
            hint="see daemon.log for the write that hangs, then restart the daemon",
        ) from err
    except DBAPIError as err:
        raise store_failure(err.orig or err, path) from err
    except StatementError as err:
        if not isinstance(err.orig, ValueError | TypeError):
            raise
        raise StoreError(
            f"a value cannot be stored: {err.orig}",
            hint="numbers must be finite: write null (missing) in place of NaN or infinity",
        ) from err
