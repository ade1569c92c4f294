"""Keeps what a foreign trainer says of its steps with the attempt: JSON lines in a log of their own, ``trainer-<client>``.

A client of the blueprint with ``trainer_log`` runs such a trainer. Its steps are evidence to look at, never the run's result: that
is what the sealed evaluator measures on a swarm server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from a3r.worker.folder import append_lines, read_lines
from a3r.worker.scrape.follow import LogFollower
from a3r.worker.scrape.steps import ScrapedStep
from a3r.worker.scrape.trainers import SCRAPERS


class TrainerLog:
    """One trainer's steps. A new one reads the log from its beginning and writes only what is not on file."""

    def __init__(self, trainer: str, log: Path, out: Path) -> None:
        """``trainer``: a name of ``SCRAPERS``."""
        self._follower = LogFollower(log, SCRAPERS[trainer]())
        self._out = out
        self._last = max((int(line["step"]) for line in read_lines(out)), default=0)

    def record(self) -> list[ScrapedStep]:
        """Put new steps on file; returns them, rising."""
        new = [step for step in self._follower.new_steps() if step.step > self._last]
        if new:
            append_lines(self._out, [_line(step) for step in new])
            self._last = new[-1].step
        return new


def _line(step: ScrapedStep) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.step, **step.metrics}
    if step.not_finite:
        told["not_finite"] = list(step.not_finite)
    return json.loads(json.dumps(told))
