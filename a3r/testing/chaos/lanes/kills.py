"""kill -9 of everything that a campaign is made of, at random moments; it goes on each time, and no attempt is lost to it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from a3r.testing.chaos.audit import audit
from a3r.testing.chaos.filing import Study, file_campaign, write_goal
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.rig import Rig, Stuck, Times, rig
from a3r.testing.chaos.targets import KILLS, Victim

EACH = 5
SOON_S = 1.0
"""Random moments lie within so long after the last sign of progress."""


def play_processes(play: Play) -> None:
    """A worker that a service manager keeps, attempts that take their time, every process of theirs killed."""
    kinds = [k for k in KILLS if k not in ("kill -9 engine", "kill -9 evaluator")]
    study = Study(seeds=2, steps=40 + 60 * play.times(EACH), mischief={"pause_s": 0.25})
    with rig(play.folder, Times()) as running:
        running.campaign_id = file_campaign(running.store, study, play.folder)
        running.local_worker()
        _break(play, running, kinds * play.times(EACH))
        finish(running)
        audit(running, play.outcome.findings)


def play_engine(play: Play) -> None:
    """The one lane with the torch engine: its child process is killed and comes back where it was."""
    study = Study(steps=8, engine="torch", mischief={"pause_s": 0.3})
    with rig(play.folder, Times()) as running:
        running.campaign_id = file_campaign(running.store, study, play.folder)
        running.local_worker()
        _break(play, running, ["kill -9 engine"] * play.times(3))
        finish(running)
        audit(running, play.outcome.findings)


def play_campaign(play: Play) -> None:
    """As a person runs it: the daemon keeps the worker, the real planner plans stage after stage, the product's own client plays."""
    kinds = ["kill -9 daemon", "kill -9 worker", "kill -9 tmux server", "kill -9 supervisor"]
    study = Study(seeds=2, steps=60, max_stages=3)
    with rig(play.folder, Times(), own_worker=True) as running:
        running.port()
        path = write_goal(study, play.folder)
        body = {"goal_text": path.read_text("utf-8"), "goal_dir": str(play.folder)}
        with running.hub() as hub:
            running.campaign_id = str(hub.post("campaigns", body)["id"])
        _break(play, running, kinds * play.times(2))
        finish(running)
        audit(running, play.outcome.findings)


def _break(play: Play, running: Rig, kinds: Sequence[str]) -> None:
    """Kill one after the other in a random order, each after progress since the one before."""
    order = list(kinds)
    play.rng.shuffle(order)
    running.wait(lambda: running.mark() > 0, "the first sign of life")
    running.surround()
    for kind in order:
        _one(play, running, kind)


def _one(play: Play, running: Rig, kind: str) -> None:
    moment = time.monotonic() + play.rng.uniform(0.0, SOON_S)
    running.wait(lambda: time.monotonic() > moment, "a random moment")

    struck: list[Victim] = []
    before: dict[str, int] = {}

    def strike() -> bool:
        if running.over:
            raise Stuck(f"the campaign was over before {kind!r}: give the lane more steps")
        victim = KILLS[kind](running, play.rng)
        if victim is None:
            return False
        before[victim.attempt_id] = running.mark(victim.attempt_id)
        struck.extend([victim] if victim.kill() else [])
        return bool(struck)

    running.wait(strike, f"a victim for {kind!r}")
    name, whose = struck[0].name, struck[0].attempt_id
    with play.fault(kind, name):
        running.wait(lambda: running.mark(whose) > before[whose], f"progress after {kind!r}")
