"""What a failing journal file means, in words; one place for all of SQLite's errors."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from swarm.protocol.errors import JournalFailed

_WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked", "another server runs on this state folder: stop it, or use another --state-dir"),
    sqlite3.SQLITE_LOCKED: ("is locked", "another server runs on this state folder: stop it, or use another --state-dir"),
    sqlite3.SQLITE_READONLY: ("is read-only", "give this user write permission on the state folder and its files"),
    sqlite3.SQLITE_PERM: ("may not be opened", "give this user write permission on the state folder and its files"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the state folder exists and that this user may write to it"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free disk space and try again; start the engine if it is OFFLINE"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk and its free space, then start with --resume"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore the state folder from a copy, or start fresh in another --state-dir"),
    sqlite3.SQLITE_NOTADB: ("is not a journal", "restore the state folder from a copy, or start fresh in another --state-dir"),
    sqlite3.SQLITE_CONSTRAINT: ("already holds this record or contradicts it", "this is a fault of the server: report it with the server's log"),
}  # fmt: skip


def journal_failure(err: sqlite3.Error, path: Path) -> JournalFailed:
    """Translate SQLite's error (by its primary result code) into one that says what happened and what to do."""
    code = getattr(err, "sqlite_errorcode", None)
    words, hint = _WORDS.get(
        code & 0xFF if code is not None else -1,
        (
            "failed",
            "see the server's log; what was acknowledged before is safe: start with --resume",
        ),
    )
    return JournalFailed(f"the journal {str(path)!r} {words}: {err}", hint=hint)


def damaged(what: str, path: Path, cause: str) -> JournalFailed:
    """A record whose bytes no longer mean anything."""
    return JournalFailed(
        f"the journal {str(path)!r} is damaged: {what} cannot be decoded ({cause})",
        hint="restore the state folder from a copy, or start fresh in another --state-dir",
    )
