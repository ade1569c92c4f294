"""Whether what a process stands on is still there: a folder can be deleted under a process that holds a file of it open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOKS = 3
"""A workspace is called gone after so many looks in a row: a share of the network may blink."""


@dataclass
class Presence:
    """Looks whether a file that a process holds open is still the one at its path."""

    path: Path
    _inode: int = 0
    _missed: int = 0

    def __post_init__(self) -> None:
        """What is there now is ours."""
        self._inode = self.path.stat().st_ino

    def gone(self) -> bool:
        """Whether it was deleted, or something else stands at its path; True only after several looks."""
        try:
            there = self.path.stat().st_ino == self._inode
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError:
            return False  # the disk does not answer: that is no verdict
        self._missed = 0 if there else self._missed + 1
        return self._missed >= LOOKS
