"""Tokens of single workers, kept as hashes: each serves one worker, and can be taken back alone."""

from __future__ import annotations

from sqlmodel import Session, col, select

from a3r.core.errors import Conflict
from a3r.core.hashing import bytes_hash
from a3r.core.types import TERMINAL_ATTEMPTS
from a3r.store.book import Book, fetch
from a3r.store.rows import WorkerTokenRow
from a3r.store.tables import AttemptTable, WorkerTable, WorkerTokenTable


class WorkerTokenBook(Book):
    """What the Store says about the tokens of workers."""

    def add_worker_token(self, name: str, token: str, at: float) -> WorkerTokenRow:
        """File a new token under ``name``; only its hash is kept. A revoked token of the same name is replaced.

        Raises:
            Conflict: the name has a valid token.
        """
        with self._db.write() as session:
            old = session.get(WorkerTokenTable, name)
            if old is not None and old.revoked_at is None:
                raise Conflict(
                    f"the worker {name!r} has a token",
                    hint="revoke it first, or choose another name",
                )
            if old is not None:
                session.delete(old)
                session.flush()
            record = WorkerTokenTable(name=name, token_hash=_hash(token), created_at=at)
            session.add(record)
            session.flush()
            return _to_row(record)

    def worker_token(self, token: str) -> WorkerTokenRow | None:
        """The entry of a token that is valid; None for any other text."""
        with self._db.read() as session:
            # Looked up by its hash, so the time that this takes says nothing about the token.
            found = session.exec(
                select(WorkerTokenTable).where(WorkerTokenTable.token_hash == _hash(token))
            ).one_or_none()
            return _to_row(found) if found is not None and found.revoked_at is None else None

    def bind_worker_token(self, name: str, worker_id: str) -> WorkerTokenRow:
        """Bind the token to the worker that used it first. Safe to repeat.

        Raises:
            Conflict: another worker uses it, or the worker has another token that is valid: nobody takes over its attempts.
        """
        with self._db.write() as session:
            record = fetch(session, WorkerTokenTable, name, "worker token")
            if record.worker_id not in (None, worker_id):
                raise Conflict(
                    f"the token {name!r} belongs to worker {record.worker_id!r}, not to {worker_id!r}",
                    hint="each worker needs a token of its own: `a3r host add`, or `a3r worker token NAME`",
                )
            if record.worker_id is None:
                _refuse_takeover(session, name, worker_id)
            record.worker_id = worker_id
            session.add(record)
            session.flush()
            return _to_row(record)

    def replace_worker_token(
        self, name: str, token: str, at: float, worker_id: str = ""
    ) -> WorkerTokenRow:
        """File a token under ``name`` in place of the one that it has, which opens nothing any more.

        ``worker_id``: the worker that it is for; empty = whoever uses it first.
        """
        with self._db.write() as session:
            old = session.get(WorkerTokenTable, name)
            if old is not None:
                session.delete(old)
                session.flush()
            record = WorkerTokenTable(
                name=name, token_hash=_hash(token), created_at=at, worker_id=worker_id or None
            )
            session.add(record)
            session.flush()
            return _to_row(record)

    def is_worker_token(self, name: str, token_hash: str, worker_id: str) -> bool:
        """Whether a token of this hash is valid under ``name`` and may be used by ``worker_id`` (empty: by nobody yet)."""
        with self._db.read() as session:
            found = session.get(WorkerTokenTable, name)
            return (
                found is not None
                and found.revoked_at is None
                and found.token_hash == token_hash
                and found.worker_id in (None, worker_id)
            )

    def revoke_worker_token(self, name: str, at: float) -> WorkerTokenRow:
        """Take a token back: from now on nobody may use it. Safe to repeat.

        Raises:
            NotFound: there is none of this name.
        """
        with self._db.write() as session:
            record = fetch(session, WorkerTokenTable, name, "worker token")
            record.revoked_at = record.revoked_at or at
            session.add(record)
            session.flush()
            return _to_row(record)

    def worker_tokens(self) -> list[WorkerTokenRow]:
        """All of them, revoked ones too, by name."""
        with self._db.read() as session:
            found = session.exec(select(WorkerTokenTable).order_by(col(WorkerTokenTable.name)))
            return [_to_row(r) for r in found]


def _refuse_takeover(session: Session, name: str, worker_id: str) -> None:
    """A worker that has a token, or works with the workspace's own, is not whoever now comes with another one under its id."""
    others = select(WorkerTokenTable).where(WorkerTokenTable.worker_id == worker_id)
    known = [t for t in session.exec(others) if t.name != name]
    valid = [repr(t.name) for t in known if t.revoked_at is None]
    held = select(AttemptTable.id).where(
        AttemptTable.worker_id == worker_id, col(AttemptTable.state).not_in(list(TERMINAL_ATTEMPTS))
    )
    worker = session.get(WorkerTable, worker_id)
    shared = worker is not None and worker.token_name == ""
    if shared or (not known and session.exec(held.limit(1)).first() is not None):
        valid = ["the workspace's"]
    if valid:
        raise Conflict(
            f"worker {worker_id!r} works with another token ({valid[0]}), not with {name!r}",
            hint="give every worker a folder of its own (--workspace), or take its own token back first",
        )


def _hash(token: str) -> str:
    # 256 random bits need no slow hash.
    return bytes_hash(token.encode())


def _to_row(record: WorkerTokenTable) -> WorkerTokenRow:
    return WorkerTokenRow.model_validate(record.model_dump(exclude={"token_hash"}))
