"""The pictures of the journal: each kept once, as long as calls name it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from swarm.server.journal.book import Book
from swarm.server.journal.database import Database
from swarm.server.journal.failures import damaged
from swarm.server.journal.records import CommittedBatch
from swarm.server.ports import TrainBatch, TrainRow


class PictureBook(Book):
    """Tables ``pictures`` and ``call_pictures``. A journal without pictures is never asked for them."""

    def __init__(self, database: Database) -> None:
        """Look whether there are any."""
        super().__init__(database)
        self._pictured = bool(database.rows("SELECT 1 FROM pictures LIMIT 1"))

    def pictures(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the encoded pictures of these digests (sha256, hex).

        Raises:
            JournalFailed: one is not there.
        """
        return {digest: self._picture(bytes.fromhex(digest)) for digest in digests}

    def _picture(self, digest: bytes) -> bytes:
        found = self._db.rows("SELECT body FROM pictures WHERE sha256 = ?", (digest,))
        if not found:
            what = f"picture {digest.hex()}"
            raise damaged(what, self._db.path, "it is not there")
        return found[0][0]

    def _keep_pictures(self, ended_order: int, pictures: Mapping[str, bytes]) -> None:
        """Keep what the calls of an end name; call inside the transaction that writes them."""
        digests = {digest: bytes.fromhex(digest) for digest in pictures}
        bodies = [(digests[name], body) for name, body in pictures.items()]
        self._db.run_many("INSERT OR IGNORE INTO pictures VALUES (?, ?)", bodies)
        self._db.run_many(
            "INSERT INTO call_pictures VALUES (?, ?)", [(ended_order, d) for d in digests.values()]
        )
        self._pictured = True

    def _move_pictures(self, ended_order: int, episode_id: str) -> None:
        """Let the pictures of an episode's calls follow them to their new place."""
        if self._pictured:
            self._db.execute(
                "UPDATE call_pictures SET ended_order = ? "
                "WHERE ended_order = (SELECT ended_order FROM episodes WHERE episode_id = ?)",
                (ended_order, episode_id),
            )

    def _forget_pictures(self) -> None:
        """Delete what no call names any more."""
        if not self._pictured:
            return
        self._db.execute(
            "DELETE FROM call_pictures WHERE ended_order NOT IN (SELECT ended_order FROM calls)"
        )
        self._db.execute(
            "DELETE FROM pictures WHERE sha256 NOT IN (SELECT sha256 FROM call_pictures)"
        )

    def _with_pictures(self, committed: CommittedBatch) -> CommittedBatch:
        """Return a batch as it was before ``without_pictures``."""
        rows = committed.batch.rows
        if not any(row.images for row in rows):
            return committed
        known = {digest: self._picture(digest) for row in rows for digest in row.images}
        committed.batch.rows = _replaced(rows, known)
        return committed


def without_pictures(batch: TrainBatch) -> TrainBatch:
    """Return a batch with the digest of each picture in its place; the same one when it has none."""
    if not any(row.images for row in batch.rows):
        return batch
    known = {data: hashlib.sha256(data).digest() for row in batch.rows for data in row.images}
    return msgspec.structs.replace(batch, rows=_replaced(batch.rows, known))


def _replaced(rows: Sequence[TrainRow], known: Mapping[bytes, bytes]) -> list[TrainRow]:
    return [
        msgspec.structs.replace(row, images=[known[image] for image in row.images])
        if row.images
        else row
        for row in rows
    ]
