"""Brings a blank or an older file to the current schema, in one transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from a3r.core.errors import StoreError
from a3r.store.schema import MIGRATIONS, VERSION

APPLICATION_ID = 0x61337201
"""Written into the file's header: tells an a3r database from any other."""


def migrate(path: Path, busy_timeout_s: float, upto: int = VERSION) -> None:
    """Create or upgrade the file to schema ``upto``; does nothing when it is there. Safe to call twice, also at once.

    Raises:
        StoreError: written by a newer a3r, or a database of something else; it is left as it was.
        sqlite3.Error: the file cannot be read or written.
    """
    with closing(sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)) as connection:
        if _version(connection, path) == upto and _is_wal(connection):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Looked up again: another process may have migrated while this one waited for the lock.
            for script in MIGRATIONS[_version(connection, path) : upto]:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {upto}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _is_wal(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def _version(connection: sqlite3.Connection, path: Path) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    blank = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not blank and application != APPLICATION_ID:
        raise StoreError(
            f"the database {str(path)!r} is not an a3r database",
            hint="move it away, or set A3R_HOME to another folder",
        )
    if found > VERSION:
        raise StoreError(
            f"the database {str(path)!r} has schema version {found}; this a3r knows versions up to {VERSION}",
            hint="use the newer a3r that wrote it, or set A3R_HOME to another folder",
        )
    return found
