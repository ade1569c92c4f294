"""Reads the raw logs of an attempt: any bytes, progress bars, lines without end, and what the supervisor put into further files.

A log is ``<role>.log`` and, once that was full, ``<role>.log.2`` (older) and ``<role>.log.1``; what lay between is gone.
"""

from __future__ import annotations

from pathlib import Path

LONGEST_LINE = 4000
TAIL_KEPT_BYTES = 1 << 20
CUT = " [...]"


def parts(path: Path) -> list[Path]:
    """The files of a log that exist, oldest first."""
    names = (path, path.with_name(path.name + ".2"), path.with_name(path.name + ".1"))
    return [part for part in names if part.exists()]


def read_tail(path: Path, limit: int, begin: int = 0) -> bytes:
    """The last ``limit`` bytes over all files; of the first one nothing before ``begin``. A file that goes meanwhile is skipped."""
    found = b""
    for part in reversed(parts(path)):
        least = begin if part == path else 0
        try:
            with part.open("rb") as file:
                size = file.seek(0, 2)
                # Shorter than it was: somebody truncated it, so all of it is new.
                least = 0 if least > size else least
                file.seek(max(least, size - (limit - len(found))))
                found = file.read(limit - len(found)) + found
        except OSError:
            continue
        if len(found) >= limit or (part == path and least):
            break
    return found


def keep_tail(path: Path) -> Path | None:
    """Write the end of a log that went on in further files as ``<role>.tail``; None when there are none. Safe to repeat."""
    if len(parts(path)) < 2:
        return None
    out = path.with_suffix(".tail")
    if not out.exists():
        draft = out.with_name(f".{out.name}")
        draft.write_bytes(read_tail(path, TAIL_KEPT_BYTES))
        draft.replace(out)
    return out


def clean_lines(data: bytes) -> list[str]:
    """Lines as a person would have seen them: bad bytes replaced, of a progress bar the last state, long lines cut, no empty ones."""
    lines: list[str] = []
    for raw in data.replace(b"\0", b"").split(b"\n"):
        seen = [piece for piece in raw.split(b"\r") if piece.strip()]
        if not seen:
            continue
        text = seen[-1].decode("utf-8", "replace").rstrip()
        lines.append(text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + CUT)
    return lines
