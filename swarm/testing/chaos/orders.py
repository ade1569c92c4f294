"""Orders to the agent's own surroundings (its tool server, its sandbox): each is taken once, by whoever comes first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Part(StrEnum):
    """Whom an order is for."""

    TOOL = "tool"
    SANDBOX = "sandbox"


class Mischief(StrEnum):
    """What it shall do instead of its work."""

    DIE = "die"
    HANG = "hang"
    LIE = "lie"  # an answer that is none


@dataclass(frozen=True, slots=True)
class Orders:
    """A folder with at most one order for each part."""

    folder: Path

    def give(self, part: Part, mischief: Mischief) -> None:
        """Leave an order; one that was not taken yet is replaced."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{part.value}"
        draft.write_text(mischief.value, encoding="utf-8")
        draft.replace(self.folder / part.value)

    def take(self, part: Part) -> Mischief | None:
        """Take the order for ``part``, if there is one."""
        taken = self.folder / f"{part.value}.taken"
        try:
            (self.folder / part.value).rename(taken)
        except FileNotFoundError:
            return None
        return Mischief(taken.read_text(encoding="utf-8"))

    def pending(self, part: Part) -> bool:
        """Whether an order waits to be taken."""
        return (self.folder / part.value).exists()
