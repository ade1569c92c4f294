"""The processes of one proof: a server, its engine, clients, a tool server; whoever is dead is started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from swarm.triggers import ENVIRONMENT

END_S = 10.0


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@dataclass
class Program:
    """One program that is kept running; its output is appended to ``log``."""

    name: str
    command: Sequence[str]
    log: Path
    shots: Path
    """Folder that its triggers are armed with."""
    starts: int = 0
    wanted: bool = True
    """False: it is not started again."""
    ended_well: bool = False
    """It ended with exit code 0 and is not started again."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _output: IO[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether it runs (a stopped one does)."""
        return self._process is not None and self._process.poll() is None

    def keep(self) -> bool:
        """Start it unless it runs or has done its work; returns whether it was started."""
        if self.alive or self.ended_well or not self.wanted:
            return False
        if self._process is not None and self._process.returncode == 0:
            self.ended_well = True
            return False
        self._start()
        return True

    def _start(self) -> None:
        self.starts += 1
        if self._output is None:
            self._output = self.log.open("ab")
        environ = {**os.environ, "OMP_NUM_THREADS": "1", ENVIRONMENT: str(self.shots)}
        self._process = subprocess.Popen(
            list(self.command), stdout=self._output, stderr=self._output, env=environ
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone is left alone."""
        if self.alive and self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is reaped. Its children end by themselves."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(END_S)

    def end(self) -> None:
        """Ask it to end, insist after a while, and close its log."""
        self.wanted = False
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            if self._process is not None:
                self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._output is not None:
            self._output.close()
            self._output = None

    def children(self) -> list[psutil.Process]:
        """Return the processes that it started itself and that live."""
        try:
            return psutil.Process(self.pid).children() if self.alive else []
        except psutil.NoSuchProcess:
            return []

    def tail(self, size: int = 3000) -> str:
        """Return the end of its log."""
        raw = self.log.read_bytes()[-size:] if self.log.exists() else b""
        return raw.decode("utf-8", "replace")


def engine_of(server: Program) -> int | None:
    """Return the process id of the server's engine; None while it has none."""
    for child in server.children():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if "--fd" in child.cmdline():
                return child.pid
    return None


def python(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]
