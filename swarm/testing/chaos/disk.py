"""A disk that can be filled: a small tmpfs where mounting is allowed, else a limit on the size of the server's files."""

from __future__ import annotations

import contextlib
import errno
import resource
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

SIZE_MIB = 24
BLOCK = 1 << 16
BALLAST = "ballast"


@dataclass(slots=True)
class SmallDisk:
    """The disk under ``folder``."""

    folder: Path
    mounted: bool
    """False: no mount was allowed; ``fill`` then limits the files of the processes that ``pids`` names."""
    pids: Callable[[], list[int]] = list

    def fill(self) -> None:
        """Leave no room for another byte."""
        if not self.mounted:
            self._limit(0)
            return
        with (self.folder / BALLAST).open("ab", buffering=0) as file:
            for size in (BLOCK, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the room back. Safe to call twice."""
        if self.mounted:
            (self.folder / BALLAST).unlink(missing_ok=True)
        else:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        for pid in self.pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def small_disk(folder: Path) -> Generator[SmallDisk]:
    """Put a small disk under ``folder`` (made if absent); at the end its files lie there without it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _mount(folder):
        yield SmallDisk(folder, mounted=False)
        return
    try:
        yield SmallDisk(folder, mounted=True)
    finally:
        kept = folder.with_name(f"{folder.name}.kept")
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(BALLAST))
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
        for path in kept.iterdir():
            shutil.move(path, folder / path.name)
        kept.rmdir()


def _mount(folder: Path) -> bool:
    options = f"size={SIZE_MIB}m,mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "swarm-small-disk", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
