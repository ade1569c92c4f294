"""Canonical JSON and content hashes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces, UTF-8 kept; NaN and infinity raise ValueError."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def content_hash(value: Any) -> str:
    """sha256 of the canonical JSON, hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def bytes_hash(data: bytes) -> str:
    """sha256, hex."""
    return hashlib.sha256(data).hexdigest()


def tree_hash(folder: Path) -> str:
    """Hash of a folder: sorted relative POSIX paths with the sha256 of each file; no times, no modes."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return content_hash(
        [[p.relative_to(folder).as_posix(), bytes_hash(p.read_bytes())] for p in files]
    )
