"""Records of a file in LevelDB's log format, which wandb and SwanLab use for their own files.

Format: https://github.com/google/leveldb/blob/main/doc/log_format.md, after a file header of seven bytes: blocks of 32 KiB, in
them records with a header of seven bytes (checksum, length, kind).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

BLOCK = 32_768
HEADER = 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[bytes]:
    """Yield the complete records in order; what a crash cut short, at the end, is left out. An empty file has none."""
    raw = path.read_bytes()
    at, parts = HEADER, b""
    while at + HEADER <= len(raw):
        room = BLOCK - at % BLOCK
        if room < HEADER:
            at += room
            continue
        length, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        piece = raw[at + HEADER : at + HEADER + length]
        if len(piece) < length or not WHOLE <= kind <= LAST:
            return
        at += HEADER + length
        parts += piece
        if kind in (WHOLE, LAST):
            yield parts
            parts = b""
