"""Readings that ``a3r campaign check`` showed: a campaign started from the same text is frozen on exactly what a person saw."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from a3r.core.hashing import bytes_hash
from a3r.core.workspace import Workspace
from a3r.leader.understanding.reading import Understanding

FOLDER = "understood"


def keep_reading(workspace: Workspace, text: str, found: Understanding) -> Path:
    """Keep it under the hash of the goal's text; a later reading of the same text replaces it. Whole or not at all."""
    path = _path(workspace, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(found.model_dump_json(indent=1))
    Path(part).replace(path)
    return path


def kept_reading(workspace: Workspace, text: str) -> Understanding | None:
    """What was shown for this text; None when nobody checked it, or when it can not be read any more."""
    try:
        return Understanding.model_validate_json(_path(workspace, text).read_bytes())
    except (OSError, ValidationError):
        return None


def _path(workspace: Workspace, text: str) -> Path:
    return workspace.root / FOLDER / f"{bytes_hash(text.encode())}.json"
