"""Whether what a process stands on is still there: a folder can be deleted under a process that holds a file of it open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOKS = 3
"""A workspace is called gone after so many looks in a row: a share of the network may blink."""


@dataclass
class Presence:
    """Looks whether a file that a process depends on is still at its path."""

    path: Path
    same_file: bool = True
    """Whether it must be the file of now: for one that is held open. Some shares of a network number their files anew."""
    _inode: int = 0
    _missed: int = 0

    def __post_init__(self) -> None:
        """What is there now is ours; raises FileNotFoundError when nothing is."""
        self._inode = self.path.stat().st_ino

    def there(self) -> bool | None:
        """Whether one look finds it; None when the disk does not answer, which is no verdict."""
        try:
            found = self.path.stat().st_ino
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return None
        return found == self._inode or not self.same_file

    def gone(self) -> bool:
        """Look; whether it was deleted, or something else stands at its path. True only after several looks."""
        there = self.there()
        if there is not None:
            self._missed = 0 if there else self._missed + 1
        return self._missed >= LOOKS
