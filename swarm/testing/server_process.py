"""A real ``swarm serve`` process for tests, examples and benchmarks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class ServerProcess:
    """A server that listens; ``token(name)`` reads its tokens file."""

    process: subprocess.Popen[bytes]
    url: str
    state_dir: Path

    def token(self, name: str = "admin") -> str:
        """One of ``admin``, ``client``, ``eval``."""
        return json.loads((self.state_dir / "tokens.json").read_text())[name]

    def kill(self) -> None:
        """SIGKILL, as a crash would; returns when the process is reaped."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


def start_server(state_dir: Path, *arguments: str, deadline_s: float = 30.0) -> ServerProcess:
    """Start ``swarm serve --port 0`` on ``state_dir`` and wait until it listens.

    Raises:
        RuntimeError: The process ended, or did not listen within ``deadline_s``; the text holds its log.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    ready, log = state_dir / "ready.json", state_dir / "server.log"
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "swarm.cli",
        "serve",
        "--port",
        "0",
        "--state-dir",
        str(state_dir),
    ]
    command += ["--ready-file", str(ready), *arguments]
    # Not among the servers of the person who runs the tests.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(state_dir / "xdg")}
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    until = time.monotonic() + deadline_s
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            msg = f"swarm serve did not listen (exit {process.poll()}):\n{log.read_text()[-4000:]}"
            raise RuntimeError(msg)
        time.sleep(0.02)
    return ServerProcess(process, json.loads(ready.read_text())["url"], state_dir)


@contextmanager
def server_process(state_dir: Path, *arguments: str) -> Iterator[ServerProcess]:
    """``start_server`` that is terminated at the end."""
    server = start_server(state_dir, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()
            try:
                server.process.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
