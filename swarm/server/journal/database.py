"""One SQLite connection with the journal's settings; turns every failure of the file into an error with a hint."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarm.protocol.errors import JournalFailed
from swarm.server.journal.failures import journal_failure
from swarm.server.journal.schema import migrate

BUSY_TIMEOUT_S = 5.0
WAL_PAGES = 4000
"""Pages (of 4 KiB) of write-ahead log before they are moved into the file: fewer, longer syncs."""


class Database:
    """The open file. Holds an exclusive lock until ``close``: one state folder, one server."""

    def __init__(self, path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open or create the file, check it and bring it to the current schema.

        Raises:
            JournalFailed: locked by another server, read-only, damaged, or not to be opened.
            ConfigError: written by a newer version, or a database of something else.
        """
        self.path = path
        self.failing = ""
        """Why the last write failed; empty again after the next that does not."""
        self.on_failure: Callable[[str], None] = lambda _why: None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as err:
            raise journal_failure(err, path) from err
        except OSError as err:
            raise JournalFailed(
                f"the state folder {str(path.parent)!r} cannot be created: {err.strerror}",
                hint="choose a --state-dir that this user can write to",
            ) from err
        try:
            self._settle()
        except sqlite3.Error as err:
            self._connection.close()
            raise journal_failure(err, path) from err
        except BaseException:
            self._connection.close()
            raise

    def _settle(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA foreign_keys = ON")
        migrate(self._connection)
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        verdict = execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise JournalFailed(
                f"the journal {str(self.path)!r} is damaged: {verdict}",
                hint="restore the state folder from a copy, or start fresh in another --state-dir",
            )

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement as its own transaction; return the number of rows it changed."""
        with self._watched():
            return self._connection.execute(sql, values).rowcount

    def insert(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one INSERT as its own transaction; return the new row id."""
        with self._watched():
            return self._connection.execute(sql, values).lastrowid or 0

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as err:
            raise journal_failure(err, self.path) from err

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> int:
        """Run one statement for each of ``values`` (inside a ``transaction``); return the number of rows changed in all."""
        with self._watched():
            return self._connection.executemany(sql, values).rowcount

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Translate a failure of SQLite and remember whether the file can be written. A contradiction is no such failure."""
        try:
            yield
        except sqlite3.Error as err:
            failure = journal_failure(err, self.path)
            if not isinstance(err, sqlite3.IntegrityError):
                self.failing = failure.message
                self.on_failure(failure.message)
            raise failure from err
        if self.failing and not self._connection.in_transaction:
            self.failing = ""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside together; any exception undoes all of it. Within another one it is a part of that."""
        if self._connection.in_transaction:
            yield
            return
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file and let go of its lock. Safe to call twice."""
        self._connection.close()
