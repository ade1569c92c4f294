"""``python -m a3r.testing.chaos``: break campaigns some hundred times and check that nothing was lost, doubled or touched that is foreign.

Exit code 0 when every lane ended and its audit found nothing, else 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from a3r.testing.chaos.lane import run_lane
from a3r.testing.chaos.lanes import lanes
from a3r.testing.chaos.report import document, problems, table, verdict

AT_ONCE = 3
"""Lanes at a time: they mostly wait for processes to come back."""


def main() -> int:
    """Play the lanes and report."""
    given = _parse()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="a3r-chaos-"))
    began = time.monotonic()
    say = _teller(began, quiet=given.quiet)
    chosen = [lane for lane in lanes() if given.lane in ("", lane.name)]
    with ThreadPoolExecutor(given.at_once) as pool:
        playing = [
            pool.submit(run_lane, o, folder / o.name, seed=given.seed, scale=given.scale, say=say)
            for o in chosen
        ]
        outcomes = [future.result() for future in playing]
    wall_s = time.monotonic() - began
    if given.json:
        body = document(outcomes, seed=given.seed, wall_s=wall_s)
        given.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    found = problems(outcomes)
    _print(table(outcomes))
    for text in found:
        _print(text)
    _print(f"seed {given.seed}, {wall_s:.0f} s" + (f", files in {folder}" if found else ""))
    _print(verdict(outcomes))
    if not found and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found or not chosen else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m a3r.testing.chaos", description=__doc__)
    names = ", ".join(lane.name for lane in lanes())
    parser.add_argument("--seed", type=int, default=0, help="order and moments of the faults")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the faults")
    parser.add_argument("--lane", default="", help=f"only this lane: {names}")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="lanes at a time")
    parser.add_argument("--folder", type=Path, help="keep all files here")
    parser.add_argument("--json", type=Path, help="write the result here too")
    parser.add_argument("--quiet", action="store_true", help="do not tell each fault")
    return parser.parse_args()


def _teller(began: float, *, quiet: bool) -> Callable[[str], None]:
    lock = threading.Lock()

    def say(text: str) -> None:
        if not quiet:
            with lock:
                sys.stderr.write(f"{time.monotonic() - began:6.1f} s  {text}\n")

    return say


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
