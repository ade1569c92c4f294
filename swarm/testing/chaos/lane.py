"""A lane: one world, one list of faults, one audit."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarm.testing.chaos.audit import Findings, audit, audit_pairs, fingerprints
from swarm.testing.chaos.faults import Fault
from swarm.testing.chaos.ledger import Claim, read_claims
from swarm.testing.chaos.pair import PAIRS_FILE, read_pairs
from swarm.testing.chaos.rig import Rig, Stuck, rig
from swarm.testing.chaos.world import SECOND, World
from swarm.testing.toy_engine import ToyEngine

logger = logging.getLogger(__name__)

RUN_S = 240.0
"""From the last fault to the end of training, at most."""


@dataclass(frozen=True)
class Lane:
    """What to break and how."""

    name: str
    world: World
    faults: Sequence[Fault]
    at_start: Sequence[Fault] = ()
    """Faults that happen before the first episode."""
    reference: str = ""
    """Name of the undisturbed run whose weights it must reach; empty = several clients, not compared."""


@dataclass
class Outcome:
    """What came of a lane."""

    name: str
    findings: Findings = field(default_factory=Findings)
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    """Kind -> seconds from each fault to the next answered finish."""
    by_chance: dict[str, int] = field(default_factory=dict[str, int])
    """Kind -> faults that the proxy drew by itself."""
    compared: bool = False
    """Whether its weights were held against an undisturbed run's."""
    split: int = 0
    """Episodes of a pair of servers that only one of them trained on, because nobody was there to commit on the other."""
    problem: str = ""
    """Why it could not be played to its end; empty = it was."""
    wall_s: float = 0.0

    @property
    def faults(self) -> int:
        """How many happened."""
        return sum(map(len, self.recovery_s.values())) + sum(self.by_chance.values())

    @property
    def clean(self) -> bool:
        """Whether it was played to its end and nothing was found."""
        return not self.problem and self.findings.clean


def undisturbed(folder: Path, world: World) -> list[str]:
    """Play a world in which nothing breaks; returns the fingerprint after each step."""
    with rig(folder, world) as running:
        programs = [running.server, *running.players]

        def over() -> bool:
            if any(program.starts > 1 for program in programs):
                raise Stuck(f"a process of the undisturbed run ended\n{running.describe()}")
            return running.over

        running.wait(over, "the undisturbed run", RUN_S)
    return fingerprints(folder / "state")


def play(
    lane: Lane,
    folder: Path,
    expected: Callable[[], Sequence[str]] | None,
    say: Callable[[str], None] = lambda _text: None,
) -> Outcome:
    """Play one lane to its end and audit it; whatever goes wrong is in the outcome. ``say`` is told each fault.

    ``expected`` is asked at the end for the fingerprints of the undisturbed run, which may be longer; None = not compared.
    """
    outcome = Outcome(lane.name, compared=expected is not None)
    began = time.monotonic()
    try:
        with rig(folder, lane.world) as running:
            _break(lane, running, outcome, say)
            running.end_soon()
            running.wait(lambda: running.over, "the end of training", RUN_S)
            if running.proxy is not None and lane.world.trouble_rate:
                done = running.proxy.done
                outcome.by_chance = {f"network: {t.value}": n for t, n in done.items()}
            claims = running.claims()
            others = read_claims(folder / SECOND / "player-0.ledger")
        engine = ToyEngine() if lane.world.config["engine"] == "toy" else None
        outcome.findings = audit(
            folder / "state", claims, expected=expected() if expected else None, engine=engine
        )
        if lane.world.paired:
            _audit_second(folder, others, outcome)
    except Stuck as error:
        outcome.problem = str(error)
    except Exception as error:
        logger.exception("lane %s", lane.name)
        outcome.problem = repr(error)
    outcome.wall_s = time.monotonic() - began
    return outcome


def _audit_second(folder: Path, claims: Mapping[str, Claim], outcome: Outcome) -> None:
    """The other server by itself, and what both made of the same episodes."""
    first, second = outcome.findings, audit(folder / SECOND / "state", claims, engine=ToyEngine())
    first.lost += second.lost
    first.doubled += second.doubled
    first.wrong += second.wrong
    first.episodes += second.episodes
    state_dirs = {"one": folder / "state", "two": folder / SECOND / "state"}
    wrong, outcome.split = audit_pairs(read_pairs(folder / PAIRS_FILE), state_dirs)
    first.wrong += wrong


def _break(lane: Lane, running: Rig, outcome: Outcome, say: Callable[[str], None]) -> None:
    for fault in lane.at_start:
        _one(lane, fault, running, outcome, say)
    running.wait_for_progress(0, "the start")
    for fault in lane.faults:
        if running.over:
            raise Stuck(f"training was over before {fault!r}: give the lane more steps")
        _one(lane, fault, running, outcome, say)


def _one(
    lane: Lane, fault: Fault, running: Rig, outcome: Outcome, say: Callable[[str], None]
) -> None:
    fault.inject(running)
    happened, since = time.monotonic(), running.answered()
    running.wait_for_progress(since, repr(fault))
    took = time.monotonic() - happened
    outcome.recovery_s[fault.kind].append(took)
    say(f"{lane.name}: {fault}, going on after {took:.2f} s")
