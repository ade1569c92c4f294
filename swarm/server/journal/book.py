"""What the parts of the journal share: the open database, the current run, decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pydantic

from swarm.protocol.errors import StateError
from swarm.server.journal.database import Database
from swarm.server.journal.failures import damaged

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


class Book:
    """Base of the journal's parts. Each part owns its tables; all share one connection and one current run."""

    def __init__(self, database: Database) -> None:
        """Find the newest run of the database, if any."""
        self._db = database
        found = database.rows("SELECT run, incarnation FROM runs ORDER BY run DESC LIMIT 1")
        self._run: int | None = found[0][0] if found else None
        self._incarnation: str | None = found[0][1] if found else None

    def _need_run(self) -> int:
        if self._run is None:
            raise StateError("the journal has no run yet", hint="call set_config first")
        return self._run

    def _decode(self, read: Callable[[Any], Any], raw: Any, what: str) -> Any:
        try:
            return read(raw)
        except (msgspec.MsgspecError, ValueError) as err:
            raise damaged(what, self._db.path, str(err)) from err

    def _parse(self, model: type[_Model], body: str) -> _Model:
        return self._decode(model.model_validate_json, body, model.__name__)
