"""``python -m a3r.cli.daemon --workspace W``: the daemon in the foreground of its own session."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from a3r.cli.daemon.process import run


def main() -> int:
    """Parse, run until told to stop, return the exit code."""
    parser = argparse.ArgumentParser(prog="a3r.cli.daemon", description="The workspace's daemon.")
    parser.add_argument("--workspace", type=Path, required=True, help="the .a3r folder")
    parser.add_argument("--no-worker", action="store_true", help="start no local worker")
    parser.add_argument("--no-window", action="store_true", help="show nothing in tmux")
    given = parser.parse_args()
    return run(given.workspace, local_worker=not given.no_worker, window=not given.no_window)


if __name__ == "__main__":
    sys.exit(main())
