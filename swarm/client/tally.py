"""What became of the episodes of one run, and whether it still makes sense to go on."""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Literal

from swarm.client.errors import TooManyFailures
from swarm.client.play import Played
from swarm.client.tasks import Task

Ended = Literal["training_complete", "until_step", "tasks_exhausted"]


@dataclass
class RunSummary:
    """Answer of ``run_episodes``. Every granted episode is counted once in the five counts."""

    finished: int = 0
    """Accepted by the server."""
    rejected: int = 0
    """Finished, but too late for their step."""
    aborted: int = 0
    """Aborted by the agent itself."""
    failed: int = 0
    """The agent raised, returned no reward, or passed a deadline."""
    lost: int = 0
    """The episode ended under the agent (a server restart, the step went on), or the server was away."""
    steps: list[int] = field(default_factory=list[int])
    """Server steps in which an episode was granted, in order."""
    first_traceback: str = ""
    """Of the first failed episode; empty = none failed."""
    ended: Ended | Literal[""] = ""
    wall_s: float = 0.0

    @property
    def episodes(self) -> int:
        """Episodes that were granted and have ended."""
        return self.finished + self.rejected + self.aborted + self.failed + self.lost


class Tally:
    """Counts outcomes, prints the first traceback, and notices when nothing succeeds any more."""

    def __init__(self, max_consecutive_failures: int) -> None:
        """Stop after this many failures without one success in between."""
        self.summary = RunSummary()
        self._limit = max_consecutive_failures
        self._failures_in_a_row = 0
        self._started = self._progress = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since an episode ended or a step began."""
        return time.monotonic() - self._progress

    def moved(self) -> None:
        """Something moved; ``idle_s`` starts again."""
        self._progress = time.monotonic()

    def granted(self, step: int) -> None:
        """An episode began in ``step``."""
        if not self.summary.steps or self.summary.steps[-1] != step:
            self.summary.steps.append(step)

    def add(self, played: Played, task: Task) -> None:
        """Count an ended episode; the first failure's traceback goes to stderr, later ones only to the count."""
        self.moved()
        setattr(self.summary, played.how, getattr(self.summary, played.how) + 1)
        if played.how != "failed":
            # A lost episode says nothing of the agent, so it neither ends nor lengthens a row of failures.
            self._failures_in_a_row = 0 if played.how != "lost" else self._failures_in_a_row
            return
        self._failures_in_a_row += 1
        if not self.summary.first_traceback and played.error is not None:
            text = "".join(traceback.format_exception(played.error))
            self.summary.first_traceback = text
            sys.stderr.write(
                f"An episode of task {task.task_id!r} failed; further failures are counted, not printed.\n{text}"
            )

    def check(self) -> None:
        """Raise when nothing succeeds any more.

        Raises:
            TooManyFailures: ``max_consecutive_failures`` failures in a row.
        """
        if self._failures_in_a_row >= self._limit:
            raise TooManyFailures(
                f"{self._failures_in_a_row} episodes failed in a row; the first failure of this run:\n{self.summary.first_traceback}",
                hint="Fix the agent (`swarm debug client.py` runs one episode), then run it again; the server keeps its step.",
            )

    def close(self, ended: Ended) -> RunSummary:
        """The summary, complete."""
        self.summary.ended = ended
        self.summary.wall_s = time.monotonic() - self._started
        return self.summary
