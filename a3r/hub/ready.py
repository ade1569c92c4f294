"""The daemon's ready record: where it listens. A record is a hint; only a live answer with a proof counts."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from a3r.hub.tokens import write_private

READY_FILE = "ready.json"


class ReadyRecord(BaseModel):
    """``daemon/ready.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    url: str
    port: int
    pid: int
    epoch: str
    started_at: float

    def write(self, folder: Path) -> None:
        """Write it atomically."""
        write_private(folder / READY_FILE, self.model_dump_json())


def read_ready(folder: Path) -> ReadyRecord | None:
    """Return the record of ``folder``; None when there is none or it makes no sense (a daemon will write a new one)."""
    try:
        return ReadyRecord.model_validate(
            json.loads((folder / READY_FILE).read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, ValidationError):
        return None
