"""The shared task queues of the journal: the list of each, and how far it was handed out."""

from __future__ import annotations

import msgspec

from swarm.server.journal.book import Book
from swarm.server.journal.codec import pack
from swarm.server.journal.records import QueuePlace, QueueRecord

_place_decoder = msgspec.msgpack.Decoder(QueuePlace)
_body_decoder = msgspec.msgpack.Decoder(QueueRecord)


class QueueBook(Book):
    """Table ``task_queues``: ``body`` is the list, written once; ``place`` moves with every group."""

    def record_queue(self, queue: QueueRecord) -> None:
        """Record a queue with its place; one of the same name is replaced."""
        values = (self._need_run(), queue.name, pack(queue), pack(queue.place))
        self._db.execute(
            "INSERT OR REPLACE INTO task_queues (run, name, body, place) VALUES (?, ?, ?, ?)",
            values,
        )

    def move_queue(self, name: str, place: QueuePlace) -> None:
        """Record where the queue of that name stands now."""
        self._db.execute(
            "UPDATE task_queues SET place = ? WHERE run = ? AND name = ?",
            (pack(place), self._run, name),
        )

    def queues(self) -> list[QueueRecord]:
        """Return the queues of the newest run by name."""
        found = self._db.rows(
            "SELECT name, body, place FROM task_queues WHERE run = ? ORDER BY name", (self._run,)
        )
        return [self._queue(name, body, place) for name, body, place in found]

    def _queue(self, name: str, body: bytes, place: bytes) -> QueueRecord:
        what = f"task queue {name!r}"
        queue: QueueRecord = self._decode(_body_decoder.decode, body, what)
        queue.place = self._decode(_place_decoder.decode, place, what)
        return queue
