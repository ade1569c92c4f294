"""A lane: one world, its faults, one audit."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from a3r.testing.chaos.findings import Outcome
from a3r.testing.chaos.rig import Rig, Stuck

logger = logging.getLogger(__name__)

FOLLOWING_S = 60.0
"""From the end of a campaign until its workers have delivered and let go of everything."""


@dataclass
class Play:
    """What a lane is played with: its folder, its chance, and where it writes down what happened."""

    folder: Path
    rng: random.Random
    outcome: Outcome
    scale: float = 1.0
    """Share of the faults, for a quick look."""
    say: Callable[[str], None] = field(default=lambda _text: None)

    def times(self, count: int) -> int:
        """``count`` by the scale, at least one."""
        return max(1, round(count * self.scale))

    @contextmanager
    def fault(self, kind: str, what: str = "") -> Generator[None]:
        """The block injects one fault and waits for the sign that things go on; that counts as one."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.outcome.recovery_s[kind].append(took)
        self.say(f"{self.outcome.name}: {kind}{f' ({what})' if what else ''}, {took:.2f} s")


@dataclass(frozen=True)
class Lane:
    """A name and what is played under it."""

    name: str
    play: Callable[[Play], None]
    lacks: Callable[[], str] = field(default=lambda: "")
    """What this machine lacks for it; empty = nothing."""


def run_lane(
    lane: Lane, folder: Path, *, seed: int, scale: float, say: Callable[[str], None]
) -> Outcome:
    """Play one lane to its end; whatever goes wrong is in the outcome."""
    outcome = Outcome(lane.name, skipped=lane.lacks())
    if outcome.skipped:
        return outcome
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"{seed}/{lane.name}")  # noqa: S311 - mischief, not a secret
    try:
        lane.play(Play(folder, rng, outcome, scale, say))
    except Stuck as error:
        outcome.problem = str(error)
    except Exception as error:
        logger.exception("lane %s", lane.name)
        outcome.problem = repr(error)
    outcome.wall_s = time.monotonic() - began
    say(f"{lane.name}: over after {outcome.wall_s:.0f} s")
    return outcome


def finish(rig: Rig) -> None:
    """Wait for the end of the campaign, and until the workers have nothing left in hand."""
    rig.wait(lambda: rig.over, "the end of the campaign", 900.0)
    rig.wait(lambda: not _unfinished(rig), "the workers let go of their attempts", FOLLOWING_S)


def _unfinished(rig: Rig) -> list[str]:
    found: list[str] = []
    for attempt in rig.attempts():
        folder = rig.folder(attempt.id)
        if folder is not None and folder.memo().phase != "finished":
            found.append(attempt.id)
    return found
