"""What the server remembers of each client for good: its task cursors, and which kind of token its id belongs to.

The journal's table ``cursors`` holds it, a row a client; a bounded number of rows is kept in memory. Cursors belong to a run
(incarnation): those of an earlier one are not told.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from swarm.protocol.clients import TaskCursor
from swarm.server.journal.journal import Journal

KEEP = 4096
"""Clients in memory; the journal has all of them."""


@dataclass(frozen=True, slots=True)
class _Note:
    owner: str = ""
    incarnation: str = ""
    latest: str = ""
    """Task set of the cursor that was told last."""
    cursors: dict[str, TaskCursor] = field(default_factory=dict[str, TaskCursor])

    def packed(self) -> dict[str, Any]:
        """Return what the journal keeps."""
        return {
            "owner": self.owner,
            "incarnation": self.incarnation,
            "latest": self.latest,
            "cursors": {name: cursor.model_dump() for name, cursor in self.cursors.items()},
        }

    @classmethod
    def read(cls, data: dict[str, Any]) -> _Note:
        """Return a note as the journal has it; an empty one when it has none."""
        cursors = data.get("cursors") or {}
        return cls(
            owner=str(data.get("owner", "")),
            incarnation=str(data.get("incarnation", "")),
            latest=str(data.get("latest", "")),
            cursors={name: TaskCursor.model_validate(value) for name, value in cursors.items()},
        )


class ClientNotes:
    """Notes by client id. Every change is in the journal when the method returns."""

    def __init__(self, journal: Journal, *, keep: int = KEEP) -> None:
        self._journal = journal
        self._keep = keep
        self._notes: OrderedDict[str, _Note] = OrderedDict()

    def owner(self, client_id: str) -> str:
        """Return the power of the token that ``client_id`` belongs to; empty when nobody claimed it."""
        return self._note(client_id).owner

    def set_owner(self, client_id: str, power: str) -> None:
        """Say to which kind of token ``client_id`` belongs. Safe to repeat."""
        note = self._note(client_id)
        if note.owner != power:
            self._keep_note(client_id, replace(note, owner=power))

    def tell(self, client_id: str, cursor: TaskCursor, incarnation: str) -> None:
        """Take a client's word on where its task order stands in the run ``incarnation``."""
        note, name = self._note(client_id), cursor.task_set
        known = note.cursors if note.incarnation == incarnation else {}
        if note.latest == name and known.get(name) == cursor:
            return
        cursors = {**known, name: cursor}
        told = replace(note, incarnation=incarnation, latest=name, cursors=cursors)
        self._keep_note(client_id, told)

    def advance(self, client_id: str, cursor: TaskCursor, incarnation: str) -> None:
        """As ``tell``, for a cursor that came with a grant: within one order it never moves back (requests can overtake)."""
        note = self._note(client_id)
        old = note.cursors.get(cursor.task_set) if note.incarnation == incarnation else None
        if old is not None and old.data_seed == cursor.data_seed:
            ahead = (cursor.position, cursor.step) > (old.position, old.step)
        else:
            ahead = True
        if ahead:
            self.tell(client_id, cursor, incarnation)

    def cursor(self, client_id: str, incarnation: str) -> TaskCursor | None:
        """Return the cursor that was told last in the run ``incarnation``; None when there is none."""
        note = self._note(client_id)
        return note.cursors.get(note.latest) if note.incarnation == incarnation else None

    def cursors(self, client_id: str, incarnation: str) -> list[TaskCursor]:
        """Return the cursors of all task sets of the client in the run ``incarnation``, by name."""
        note = self._note(client_id)
        if note.incarnation != incarnation:
            return []
        return [note.cursors[name] for name in sorted(note.cursors)]

    def _note(self, client_id: str) -> _Note:
        note = self._notes.get(client_id)
        if note is None:
            note = _Note.read(self._journal.cursor(client_id))
        self._remember(client_id, note)
        return note

    def _keep_note(self, client_id: str, note: _Note) -> None:
        self._journal.set_cursor(client_id, note.packed())
        self._remember(client_id, note)

    def _remember(self, client_id: str, note: _Note) -> None:
        self._notes[client_id] = note
        self._notes.move_to_end(client_id)
        while len(self._notes) > self._keep:
            self._notes.popitem(last=False)
