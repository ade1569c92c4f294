"""GPUs that are measured, not believed: a busy one is refused whatever the table says, and none is given away twice."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from a3r.core.types import AttemptState
from a3r.store.rows import AttemptRow
from a3r.testing.chaos.audit import audit
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.programs import python
from a3r.testing.chaos.rig import Rig, Times, rig

QUIET_S = 4.0
"""A worker has asked for work some times by then."""
GPUS = 2


def play_gpus(play: Play) -> None:
    """A worker with two GPUs out of a file, more slots than GPUs, and a foreigner who comes and goes."""
    study = Study(
        seeds=3,
        steps=20,
        capacity=4,
        settings={"resources.gpus": 1},
        mischief={"pause_s": 0.3},
    )
    with rig(play.folder, Times()) as running:
        foreigner = running.bystanders.start("foreigner", "train_something_else.py")
        inventory = _Inventory(play.folder / "gpus.json", foreigner)
        inventory.write(busy=range(GPUS))
        running.campaign_id = file_campaign(running.store, study, play.folder)
        running.port()
        _add_worker(running, inventory.path)
        _both_busy(play, running)
        _one_busy(play, running, inventory)
        _silent(play, running, inventory)
        _killed(play, running, inventory)
        inventory.write()
        finish(running)
        audit(running, play.outcome.findings)
        _shared(running.attempts(), play)


class _Inventory:
    """The file that the worker's fake driver reads."""

    def __init__(self, path: Path, foreigner: int) -> None:
        self.path, self._foreigner = path, foreigner

    def write(self, busy: Any = (), silent: str = "") -> None:
        """Say which GPUs the foreigner uses, or that the driver does not answer."""
        used: list[Mapping[str, Any]] = [
            {"pid": self._foreigner, "name": "python", "memory_mb": 40_000}
        ]
        gpus = [
            {"index": n, "used_mb": 40_000 if n in busy else 3, "processes": used * (n in busy)}
            for n in range(GPUS)
        ]
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps({"gpus": gpus, "silent": silent}), encoding="utf-8")
        draft.replace(self.path)


def _add_worker(running: Rig, inventory: Path) -> None:
    root = running.workspace.root
    command = python("a3r.testing.chaos.gpu_worker", root, running.workspace.daemon, inventory)
    running.add_worker("worker", command, root)


def _claimed(running: Rig) -> list[AttemptRow]:
    return [a for a in running.attempts() if a.worker_id is not None]


def _held(running: Rig) -> list[AttemptRow]:
    return [a for a in _claimed(running) if a.ended_at is None]


def _nothing_is_claimed(play: Play, running: Rig, what: str) -> None:
    running.wait(lambda: _queued(running), "an attempt waits")
    before, until = len(_claimed(running)), time.monotonic() + QUIET_S
    running.wait(lambda: time.monotonic() > until, "a while")
    taken = len(_claimed(running)) - before
    if taken:
        play.outcome.findings.doubled.append(f"{taken} attempts were begun: {what}")


def _queued(running: Rig) -> bool:
    return any(a.state is AttemptState.QUEUED for a in running.attempts())


def _both_busy(play: Play, running: Rig) -> None:
    with play.fault("GPU busy with somebody else's work", "both"):
        running.wait(lambda: bool(running.store.workers()), "the worker is there")
        _nothing_is_claimed(play, running, "all GPUs are busy")


def _one_busy(play: Play, running: Rig, inventory: _Inventory) -> None:
    with play.fault("GPU busy with somebody else's work", "one of two"):
        inventory.write(busy=[1])
        running.wait(lambda: _held(running), "the free GPU is given away")
        _nothing_is_claimed(play, running, "the other GPU is busy")
        for attempt in _claimed(running):
            if attempt.placement["gpus"] != [0]:
                text = f"{attempt.id} was given {attempt.placement['gpus']}, and only 0 was free"
                play.outcome.findings.foreign.append(text)
            if not attempt.placement["co_tenants"]:
                play.outcome.findings.wrong.append(f"{attempt.id} does not tell its co-tenant")


def _silent(play: Play, running: Rig, inventory: _Inventory) -> None:
    with play.fault("GPU driver silent"):
        inventory.write(silent="the driver does not answer")
        _nothing_is_claimed(play, running, "nothing was measured")


def _killed(play: Play, running: Rig, inventory: _Inventory) -> None:
    """The table of who holds what survives the worker: it is read from the attempts' own folders."""
    with play.fault("kill -9 worker that holds GPUs"):
        inventory.write()
        running.wait(lambda: len(_held(running)) == GPUS, "both GPUs are given away")
        running.workers["worker"].kill()
        since = running.mark()
        running.wait(lambda: running.mark() > since, "its successor goes on")


def _shared(attempts: list[AttemptRow], play: Play) -> None:
    """Two attempts on one GPU at the same time."""
    for one, two in itertools.combinations([a for a in attempts if a.worker_id], 2):
        common = set(one.placement["gpus"]) & set(two.placement["gpus"])
        first, second = sorted((one, two), key=lambda a: a.leased_at or 0.0)
        apart = (first.ended_at or 0.0) <= (second.leased_at or 0.0)
        if common and one.worker_id == two.worker_id and not apart:
            text = f"GPU {sorted(common)} was leased to {one.id} and {two.id} at once"
            play.outcome.findings.doubled.append(text)
