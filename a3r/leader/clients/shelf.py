"""The user's own code and references as a language model may read them: named files, quoted, never changed, nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from a3r.core.llm import ToolCall, ToolSpec
from a3r.leader.llm.tools import arguments_of, quoted

PAGE = 16_000
"""Characters of one reading."""
MAX_LISTED = 300
MAX_READ = 8 * 2**20
"""Bytes of a file that can be read at all; a data set may be larger than the memory."""
TEXT = frozenset(
    {".py", ".md", ".txt", ".rst", ".json", ".jsonl", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".sh", ".csv"}
)  # fmt: skip
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
SPECS = (
    ToolSpec(
        name="list_files",
        description="The text files of the user's code and references, with their sizes in bytes.",
        parameters={"type": "object", "properties": {}},
    ),
    ToolSpec(
        name="read_file",
        description="Up to 16,000 characters of one of these files.",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}},
            "required": ["path"],
        },
    ),
)


@dataclass(frozen=True)
class Shelf:
    """A ``Toolbox`` over some files and folders."""

    places: tuple[Path, ...]

    def files(self) -> dict[str, Path]:
        """Shown name -> file, in order; hidden files, links and whatever is no text are left out."""
        found: dict[str, Path] = {}
        for place in self.places:
            if place.is_file():
                found.setdefault(place.name, place)
            for path in sorted(place.rglob("*")) if place.is_dir() else ():
                parts = path.relative_to(place).parts
                odd = any(p.startswith(".") or p in SKIPPED for p in parts)
                if odd or path.is_symlink() or not path.is_file() or path.suffix not in TEXT:
                    continue
                found.setdefault(f"{place.name}/{'/'.join(parts)}", path)
                if len(found) >= MAX_LISTED:
                    return found
        return found

    def specs(self) -> tuple[ToolSpec, ...]:
        """Both tools; none when there is nothing to read."""
        return SPECS if self.places else ()

    def use(self, call: ToolCall) -> str:
        """List or read. Never raises."""
        try:
            if call.name == "list_files":
                sizes = {name: path.stat().st_size for name, path in self.files().items()}
                return quoted("files", json.dumps(sizes, indent=1))
            if call.name == "read_file":
                return self._read(arguments_of(call))
        except (ValueError, OSError) as error:
            return f"error: {error}"
        return f"error: there is no tool {call.name!r}"

    def _read(self, arguments: dict[str, object]) -> str:
        name, offset = str(arguments.get("path", "")), arguments.get("offset", 0)
        path = self.files().get(name)
        if path is None:
            return f"error: there is no file {name!r}; list_files names them"
        with path.open("rb") as file:
            text = file.read(MAX_READ).decode("utf-8", "replace")
        start = max(0, offset) if isinstance(offset, int) else 0
        return quoted(f"{name}, {len(text)} characters, from {start}", text[start : start + PAGE])
