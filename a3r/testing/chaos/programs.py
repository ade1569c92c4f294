"""The programs of one lane: each is started again when it is dead, as a person or a service manager would."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

END_S = 20.0


@dataclass
class Program:
    """One program; its output is appended to ``log``."""

    name: str
    command: Sequence[str]
    log: Path
    environ: Mapping[str, str]
    wanted: bool = True
    """False: it is not started again."""
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether it runs (a stopped one does)."""
        return self._process is not None and self._process.poll() is None

    def keep(self) -> bool:
        """Start it unless it runs or is not wanted; returns whether it was started."""
        if self.alive or not self.wanted:
            return False
        self.starts += 1
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.environ),
                start_new_session=True,
            )
        return True

    def kill(self) -> None:
        """SIGKILL, and wait until it is reaped."""
        if self._process is not None and self.alive:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(END_S)

    def away(self) -> None:
        """SIGKILL, and leave it dead until ``back``."""
        self.wanted = False
        self.kill()

    def back(self) -> None:
        """Start it again after ``away``."""
        self.wanted = True
        self.keep()

    def end(self) -> None:
        """Ask it to end; insist after a while."""
        self.wanted = False
        if self._process is None or not self.alive:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, size: int = 2500) -> str:
        """The end of its log."""
        raw = self.log.read_bytes()[-size:] if self.log.exists() else b""
        return raw.decode("utf-8", "replace")


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]
