"""Follows a foreign trainer's log from where the last look ended."""

from __future__ import annotations

from pathlib import Path

from a3r.worker.logs import clean_lines
from a3r.worker.scrape.steps import ScrapedStep, Scraper

READ_BYTES = 4 << 20
"""Of one look; the rest comes with the next."""
LONGEST_REST = 1 << 20
"""An unfinished line longer than this is given up."""


class LogFollower:
    """New steps of a log that grows, is rotated or is truncated. One thread."""

    def __init__(self, path: Path, scraper: Scraper) -> None:
        """From the beginning of ``path``, which need not be there yet."""
        self._path, self._scraper = path, scraper
        self._offset, self._inode, self._rest = 0, 0, b""
        self._last = 0

    def new_steps(self) -> list[ScrapedStep]:
        """Steps since the last look, rising; a step that was said twice (a progress bar) is given once, as last said in this look."""
        found: dict[int, ScrapedStep] = {}
        for line in clean_lines(self._read()):
            step = self._scraper.line(line)
            if step is not None and step.step > self._last:
                found[step.step] = step
        self._last = max(found, default=self._last)
        return [found[number] for number in sorted(found)]

    def _read(self) -> bytes:
        """Whole lines only; what is unfinished waits."""
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                if stat.st_ino != self._inode or stat.st_size < self._offset:
                    self._offset, self._rest, self._inode = 0, b"", stat.st_ino
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError:
            return b""
        self._offset += len(data)
        data = self._rest + data
        # A progress bar ends its states with a carriage return.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        whole, rest = data[:end], data[end:]
        self._rest = rest if len(rest) <= LONGEST_REST else b""
        return whole
