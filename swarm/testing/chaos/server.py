"""``swarm serve`` as the proofs need it: the toy engine in a child process of its own, and a clock that can be made to jump.

``python -m swarm.testing.chaos.server --state-dir DIR --port N [--resume] [--clock-file FILE]``; shots as for every process.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from swarm.server.engine.host import EngineHost
from swarm.server.ports import Engine
from swarm.server.serve import ServeOptions, serve
from swarm.server.service.clock import SystemClock
from swarm.testing.chaos import LOG_FORMAT
from swarm.testing.chaos.orphans import end_with_parent
from swarm.triggers import ENVIRONMENT, arm


class JumpingClock(SystemClock):
    """The machine's clocks, but wall time is ahead by the seconds that a file names (no file: 0)."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def time(self) -> float:
        """Return unix seconds, as far off as the file says."""
        try:
            return super().time() + float(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return super().time()


def set_jump(file: Path, seconds: float) -> None:
    """Set the clocks of the processes that read ``file`` ahead by ``seconds`` (negative: behind)."""
    draft = file.with_name(f".{file.name}")
    draft.write_text(str(seconds), encoding="utf-8")
    draft.replace(file)


def make_engine(name: str) -> Engine:
    """Return an engine in a child process: the toy one, or the torch one."""
    return EngineHost("swarm.testing.toy_child") if name == "toy" else EngineHost()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--clock-file", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    end_with_parent()
    arm(os.environ.get(ENVIRONMENT, ""))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    options = ServeOptions(
        state_dir=given.state_dir,
        port=given.port,
        resume=given.resume,
        ready_file=given.ready_file,
    )
    serve(options, make_engine, JumpingClock(given.clock_file))


if __name__ == "__main__":
    main()
