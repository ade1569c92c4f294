"""What the tests of all dialects share."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.fixture
def events() -> Any:
    """Return a reader of SSE blocks: ``(event name, data)`` pairs; ``[DONE]`` comes as None."""

    def read(raw: bytes) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for block in raw.decode().split("\n\n"):
            if not block:
                continue
            lines = dict(line.split(": ", 1) for line in block.split("\n"))
            data = lines["data"]
            found.append((lines.get("event", ""), None if data == "[DONE]" else json.loads(data)))
        return found

    return read
