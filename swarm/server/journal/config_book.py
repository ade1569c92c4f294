"""The configuration of a run over its steps: what it began with, and each change with who, when and from which step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import ConfigChange
from swarm.server.journal.book import Book
from swarm.server.journal.records import ConfigEntry

_ENTRIES = "SELECT step, at, who, changes, config FROM config_changes WHERE run = ? "


class ConfigBook(Book):
    """Table ``config_changes``. A later entry replaces what an earlier one said of the same and of later steps."""

    def record_config_change(
        self,
        config: TrainConfig,
        *,
        step: int,
        at: float,
        who: str,
        changes: Sequence[ConfigChange],
    ) -> None:
        """Record, before it is acknowledged, that ``config`` holds from status ``step`` on."""
        told = json.dumps([change.model_dump(mode="json") for change in changes])
        self._db.execute(
            "INSERT INTO config_changes (run, step, at, who, changes, config) VALUES (?, ?, ?, ?, ?, ?)",
            (self._need_run(), step, at, who, told, config.model_dump_json()),
        )

    def config_changes(self) -> list[ConfigEntry]:
        """Return the changes of the newest run in the order in which they were accepted."""
        return [self._entry(row) for row in self._db.rows(_ENTRIES + "ORDER BY seq", (self._run,))]

    def config(self) -> TrainConfig | None:
        """Return the config that the newest run began with; None before the first ``set_config``."""
        found = self._db.rows("SELECT config FROM runs WHERE run = ?", (self._run,))
        return self._parse(TrainConfig, found[0][0]) if found else None

    def config_at(self, step: int) -> TrainConfig | None:
        """Return the config in force while status ``step`` is open; None before the first ``set_config``."""
        newest = _ENTRIES + "AND step <= ? ORDER BY seq DESC LIMIT 1"
        found = self._db.rows(newest, (self._run, step))
        return self._entry(found[0]).config if found else self.config()

    def config_after(self, step: int) -> ConfigEntry | None:
        """Return the newest accepted change when it only holds from a later status step than ``step``; else None."""
        found = self._db.rows(_ENTRIES + "ORDER BY seq DESC LIMIT 1", (self._run,))
        entry = self._entry(found[0]) if found else None
        return entry if entry is not None and entry.step > step else None

    def _entry(self, row: tuple[Any, ...]) -> ConfigEntry:
        return ConfigEntry(
            step=row[0],
            at=row[1],
            who=row[2],
            changes=self._decode(json.loads, row[3], "a change of the configuration"),
            config=self._parse(TrainConfig, row[4]),
        )
