"""The one engine factory: WAL, busy timeout, foreign keys; one writing connection with BEGIN IMMEDIATE, readers apart."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.pool import QueuePool
from sqlmodel import Session, create_engine

from a3r.core.errors import StoreError
from a3r.core.hashing import canonical_json
from a3r.store.changes import Changes
from a3r.store.failures import translated
from a3r.store.migrations import migrate

BUSY_TIMEOUT_S = 30.0
READERS = 8


class Database:
    """The open file. Sessions are short: one transaction each, never held over a network call."""

    def __init__(self, path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open or create the file and bring it to the current schema.

        Raises:
            StoreError: locked, read-only, full, damaged, from a newer a3r, or a database of something else.
        """
        self.path = path
        self.changed = Changes()
        with translated(path):
            migrate(path, busy_timeout_s)
        # One writing connection: threads of this process queue on the pool (fair), others on SQLite's lock.
        self._writer = _engine(path, busy_timeout_s, connections=1, begin="BEGIN IMMEDIATE")
        self._reader = _engine(path, busy_timeout_s, connections=READERS, begin="BEGIN")

    @contextmanager
    def write(self, *, durable: bool = False) -> Generator[Session]:
        """One writing transaction: commits at the end and wakes the waiting if anything changed; an exception undoes it.

        A commit survives the end of this process. ``durable``: it, and every commit before it, survives a power failure too.
        """
        with translated(self.path), Session(self._writer, expire_on_commit=False) as session:
            raw: Any = session.connection().connection.dbapi_connection
            before = raw.total_changes
            try:
                yield session
                session.commit()
            finally:
                # A claim that found nothing must wake nobody: those who wait for work would wake each other for ever.
                if raw.total_changes != before:
                    self.changed.notify()
        if durable:
            # Also when nothing was written: what a repeat finds done may not be on the disk yet.
            self._sync()

    @contextmanager
    def read(self) -> Generator[Session]:
        """One consistent view; never waits for a writer and never blocks it."""
        with (
            translated(self.path),
            Session(self._reader, expire_on_commit=False, autoflush=False) as session,
        ):
            yield session

    def _sync(self) -> None:
        """Wait until the disk has every commit so far. Outside of the transaction: others write meanwhile, and are synced along.

        With ``synchronous = NORMAL`` a commit is in the write-ahead log, which SQLite syncs only before it takes it into the
        database; the lock files are others, so that opening and closing this one drops no lock.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        try:
            handle = os.open(log, os.O_RDONLY)
        except FileNotFoundError:
            return  # a file system without write-ahead logs: SQLite synced
        try:
            os.fsync(handle)
        except OSError as error:
            raise StoreError(
                f"the database {str(self.path)!r} cannot be written: {error.strerror}",
                hint="check the disk and its free space, then repeat the command",
            ) from error
        finally:
            os.close(handle)

    def close(self) -> None:
        """Let go of all connections. Safe to call twice."""
        self._writer.dispose()
        self._reader.dispose()


def _engine(path: Path, busy_timeout_s: float, *, connections: int, begin: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path.absolute())),  # a "?" in a path is no query
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=2 * busy_timeout_s,
        connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
        json_serializer=canonical_json,
    )
    read_only = begin == "BEGIN"

    def settle(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")

    def open_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", settle)
    event.listen(engine, "begin", open_transaction)
    return engine
