"""``python -m swarm.testing.chaos``: break a swarm some hundred times and check that nothing was lost or doubled.

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
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from swarm.testing.chaos.lane import Lane, Outcome, play, undisturbed
from swarm.testing.chaos.plans import TORCH, TOY, lanes
from swarm.testing.chaos.report import document, problems, table, verdict

AT_ONCE = 5
"""Lanes at a time: they mostly wait for processes to come back."""


def main() -> int:
    """Play the lanes and report."""
    given = _parse()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="swarm-chaos-"))
    began = time.monotonic()
    chosen = [lane for lane in lanes(given.seed, given.scale) if given.lane in ("", lane.name)]
    outcomes = _play_all(chosen, folder, _teller(began, quiet=given.quiet), given.at_once)
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
    return 1 if found else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m swarm.testing.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="order and places of the faults")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the faults, for a quick look"
    )
    parser.add_argument("--lane", default="", help="only this lane")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="lanes at a time")
    parser.add_argument("--folder", type=Path, help="keep all files here")
    parser.add_argument("--json", type=Path, help="write the result here too")
    parser.add_argument("--quiet", action="store_true", help="do not tell each fault")
    return parser.parse_args()


def _play_all(
    chosen: Sequence[Lane], folder: Path, say: Callable[[str], None], at_once: int
) -> list[Outcome]:
    """Play the undisturbed runs that the lanes are compared with, and beside them the lanes."""
    with ThreadPoolExecutor(at_once) as pool:
        references = {
            name: pool.submit(undisturbed, folder / f"undisturbed-{name}", lane.world)
            for name, lane in _longest(chosen).items()
        }
        running: list[Future[Outcome]] = []
        for lane in chosen:
            reference = references.get(lane.reference)
            expected = reference.result if reference is not None else None
            running.append(pool.submit(play, lane, folder / lane.name, expected, say))
        return [future.result() for future in running]


def _longest(chosen: Sequence[Lane]) -> dict[str, Lane]:
    """Return for each reference the lane with the most steps: shorter ones have the same first steps."""
    found: dict[str, Lane] = {}
    for name in (TOY, TORCH):
        own = [lane for lane in chosen if lane.reference == name]
        if own:
            # Evaluations change no weights and take time.
            found[name] = max(
                own, key=lambda o: (o.world.config["stop_at_step"], -o.world.eval_every)
            )
    return found


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
