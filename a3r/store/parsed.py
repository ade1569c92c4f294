"""Blueprints as objects, each content read once: the store looks into one for every attempt that is queued, claimed or finished."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sqlmodel import Session, select

from a3r.blueprints.model import Blueprint
from a3r.store.tables import BlueprintTable

KEPT = 256


class _Parsed:
    """The last used ones, by content hash; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Blueprint] = OrderedDict()

    def get(self, content_hash: str) -> Blueprint | None:
        with self._lock:
            found = self._known.get(content_hash)
            if found is not None:
                self._known.move_to_end(content_hash)
            return found

    def put(self, content_hash: str, blueprint: Blueprint) -> None:
        with self._lock:
            self._known[content_hash] = blueprint
            while len(self._known) > KEPT:
                self._known.popitem(last=False)


_PARSED = _Parsed()


def parsed(session: Session, blueprint_id: str, content_hash: str) -> Blueprint:
    """The blueprint ``blueprint_id``, whose content has this hash (of everything in it). Look only: it is shared."""
    found = _PARSED.get(content_hash)
    if found is None:
        query = select(BlueprintTable).where(BlueprintTable.id == blueprint_id)
        found = Blueprint.model_validate(session.exec(query).one().body)
        _PARSED.put(content_hash, found)
    return found
