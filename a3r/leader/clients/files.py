"""A client, and its sealed evaluator, as files in words: what a language model writes, what a diff shows, what is packed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import BlueprintError

MAX_FILES = 40
MAX_CHARACTERS = 200_000
"""Of one file."""
MAX_SHOWN = 60_000
"""Characters of a client that are shown to a language model."""


class File(BaseModel):
    """One text file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str = Field(min_length=1, max_length=200)
    """Relative, with forward slashes."""
    content: str = Field(max_length=MAX_CHARACTERS)


def write_files(folder: Path, files: Iterable[File]) -> None:
    """Write each file below ``folder``; one that is there is replaced.

    Raises:
        BlueprintError: a path that leaves the folder, is hidden or no plain name, or too many files.
    """
    listed = list(files)
    if len(listed) > MAX_FILES:
        raise BlueprintError(f"{len(listed)} files are more than {MAX_FILES}")
    for file in listed:
        target = folder / plain_path(file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.content, encoding="utf-8")


def plain_path(name: str) -> PurePosixPath:
    """The path, if it is a relative one of plain names.

    Raises:
        BlueprintError: it is none.
    """
    path = PurePosixPath(name)
    odd = any(p.startswith(".") or p == "__pycache__" or "\\" in p for p in path.parts)
    if path.is_absolute() or not path.parts or odd or not name.isprintable():
        raise BlueprintError(
            f"{name!r} is no file name that a client may have",
            hint="relative paths of plain names, e.g. client.py or data/train.jsonl",
        )
    return path


def read_files(folder: Path) -> dict[str, str]:
    """Relative path -> text of each file, in order; bytes that are no UTF-8 are replaced."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return {
        p.relative_to(folder).as_posix(): p.read_bytes().decode("utf-8", "replace") for p in found
    }


def diff_of(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """A unified diff over all files; empty when nothing differs."""
    parts: list[str] = []
    for name in sorted({*old, *new}):
        before, after = old.get(name, ""), new.get(name, "")
        if before == after:
            continue
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{name}" if name in old else "/dev/null",
            f"b/{name}" if name in new else "/dev/null",
        )
        parts += [line if line.endswith("\n") else f"{line}\n" for line in lines]
    return "".join(parts)


def listing(files: Mapping[str, str], most: int = MAX_SHOWN) -> str:
    """The files one after the other, each under its name; cut where they are longer than ``most`` characters."""
    out: list[str] = []
    left = most
    for name, text in files.items():
        shown = text[: max(0, left)]
        cut = (
            ""
            if len(shown) == len(text)
            else f"\n[... {len(text) - len(shown)} characters left out ...]"
        )
        out.append(f"=== {name} ===\n{shown}{cut}")
        left -= len(shown)
    return "\n".join(out)
