"""Foreign processes that look like an attempt's and must live: same names, a nonce that is nearly right, a tmux session beside ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from a3r.worker.supervisor import NONCE, PROCESS, start_time

# Writes down each signal that it gets, and lives on until its standard input is closed.
CODE = """
import signal, sys
def told(number, frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"{number}\\n")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, told)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Bystanders:
    """Started with a lane and looked at after its end."""

    folder: Path
    _running: dict[str, tuple[subprocess.Popen[bytes], int | None]] = field(
        default_factory=dict[str, tuple[subprocess.Popen[bytes], int | None]]
    )

    def start(self, name: str, *argv: str, environ: Mapping[str, str] | None = None) -> int:
        """Start one whose command line ends in ``argv``; returns its pid once it can take signals."""
        self.folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CODE, str(self._file(name)), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", **(environ or {})},
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        self._running[name] = (process, start_time(process.pid))
        return process.pid

    def resemble(self, nonce: str, attempt_id: str) -> None:
        """Start what a careless clean-up of this attempt would kill."""
        number = len(self._running)
        serve = ("-P", "-m", "swarm.cli", "serve", "--state-dir", f"runs/{attempt_id}/server")
        self.start(f"server-{number}", *serve, nonce)
        self.start(f"client-{number}", f"runs/{attempt_id}/client/client.py", "client.json")
        # The nonce of another attempt begins with ours; and ours stands in a variable of another name.
        marks = {NONCE: f"{nonce}0", PROCESS: "server.1", "A3R_NONCE_OLD": nonce}
        self.start(f"nonce-{number}", "supervisor.py", environ=marks)

    def harmed(self) -> list[str]:
        """What happened to them, in words; empty = nothing."""
        found: list[str] = []
        for name, (process, started) in self._running.items():
            if process.poll() is not None or start_time(process.pid) != started:
                found.append(f"{name} (pid {process.pid}) was ended")
            elif self._file(name).exists():
                signals = self._file(name).read_text().split()
                found.append(f"{name} (pid {process.pid}) got signals {', '.join(signals)}")
        return found

    def __len__(self) -> int:
        return len(self._running)

    def end(self, name: str = "") -> None:
        """Let one go, or all."""
        for key in [name] if name else list(self._running):
            process, _ = self._running.pop(key)
            process.communicate()

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.signals"
