"""Tables of the journal and their numbered migrations. Version n means that the first n migrations were applied."""

from __future__ import annotations

import sqlite3

from swarm.protocol.errors import ConfigError

# The calls of an episode lie apart, appended in order of ending: a finish then never moves a row that grew.
_V1 = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    started_at REAL NOT NULL
) STRICT;
CREATE TABLE episodes (
    episode_id TEXT PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs(run),
    kind TEXT NOT NULL,
    client_id TEXT NOT NULL,
    task_set TEXT NOT NULL,
    task_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    repeat_index INTEGER NOT NULL,
    step INTEGER NOT NULL,
    policy_version INTEGER NOT NULL,
    granted_at REAL NOT NULL,
    idle_deadline_s REAL,
    state TEXT NOT NULL,
    reward REAL,
    metrics BLOB,
    reason TEXT NOT NULL DEFAULT '',
    ended_at REAL,
    ended_order INTEGER,
    consumed_step INTEGER,
    dropped TEXT NOT NULL DEFAULT '',
    call_count INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE calls (
    ended_order INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE batches (
    run INTEGER NOT NULL REFERENCES runs(run),
    step INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, step)
) STRICT;
CREATE TABLE step_metrics (
    run INTEGER NOT NULL REFERENCES runs(run),
    step INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, step)
) STRICT;
CREATE TABLE checkpoints (
    run INTEGER NOT NULL REFERENCES runs(run),
    step INTEGER NOT NULL,
    policy_version INTEGER NOT NULL,
    path TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (run, step)
) STRICT;
CREATE TABLE eval_rounds (
    run INTEGER NOT NULL REFERENCES runs(run),
    step INTEGER NOT NULL,
    planned INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    PRIMARY KEY (run, step)
) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE cursors (
    client_id TEXT PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
"""

# ``details`` holds what only some episodes have (agents, code hash, a prepared finish) as one msgpack struct.
# ``verdicts`` says what became of each call of a consumed episode; the calls themselves are written before that is known.
_V2 = """
ALTER TABLE episodes ADD COLUMN details BLOB;
CREATE TABLE verdicts (
    ended_order INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE config_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(run),
    step INTEGER NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    changes TEXT NOT NULL,
    config TEXT NOT NULL
) STRICT;
CREATE TABLE task_queues (
    run INTEGER NOT NULL REFERENCES runs(run),
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    place BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;
"""

# A picture lies here once, whoever sent it; ``call_pictures`` says which calls name it, and with them it goes.
_V3 = """
CREATE TABLE pictures (
    sha256 BLOB PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE call_pictures (
    ended_order INTEGER NOT NULL,
    sha256 BLOB NOT NULL REFERENCES pictures(sha256),
    PRIMARY KEY (ended_order, sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_pictures_by_sha256 ON call_pictures (sha256);
"""

MIGRATIONS = (_V1, _V2, _V3)
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a blank or older journal to ``VERSION``; does nothing when it is there. Safe to call twice.

    Raises:
        ConfigError: the file was written by a newer version, or is some other database; it is left as it was.
        sqlite3.Error: the file cannot be read or written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _version(connection)
        for script in MIGRATIONS[found:]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute("UPDATE schema_version SET version = ?", (VERSION,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT")
        connection.execute("INSERT INTO schema_version VALUES (0)")
    elif "schema_version" not in tables:
        raise ConfigError(
            "the journal's file is a database of something else",
            hint="choose another --state-dir",
        )
    found = int(connection.execute("SELECT version FROM schema_version").fetchone()[0])
    if found > VERSION:
        raise ConfigError(
            f"the journal has schema version {found}; this program knows versions up to {VERSION}",
            hint="use the newer program that wrote it, or another --state-dir",
        )
    return found
