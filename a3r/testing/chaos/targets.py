"""What a fault kills: found from the records that the product itself keeps, at the moment of the kill."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from a3r.testing.chaos.rig import Rig
from a3r.worker.folder import AttemptFolder
from a3r.worker.processes import Process, ProcessState, read_json
from a3r.worker.supervisor import send, start_time


@dataclass(frozen=True)
class Victim:
    """One process."""

    pid: int
    started: int | None
    name: str
    attempt_id: str = ""
    """Whose process it is; empty: of all."""

    def kill(self) -> bool:
        """SIGKILL exactly this process; False when it was gone already."""
        return send(self.pid, self.started, signal.SIGKILL)


def _victim(pid: int, name: str, attempt_id: str = "") -> Victim:
    return Victim(pid, start_time(pid), name, attempt_id)


def living(rig: Rig) -> list[tuple[AttemptFolder, Process]]:
    """Every supervised process that runs now."""
    found: list[tuple[AttemptFolder, Process]] = []
    for attempt in rig.attempts():
        folder = rig.folder(attempt.id) if attempt.ended_at is None else None
        if folder is not None:
            running = [p for p in folder.processes() if p.state() is ProcessState.RUNNING]
            found += [(folder, process) for process in running]
    return found


def _of_role(rig: Rig, rng: random.Random, role: str, which: str) -> Victim | None:
    found = [(folder, p) for folder, p in living(rig) if p.name.startswith(role)]
    if not found:
        return None
    folder, process = rng.choice(found)
    record = read_json(process.folder / "start.json")
    if record is None:
        return None
    who = record[which]
    name = f"{which} of {process.name}"
    return Victim(int(who["pid"]), who["start_time"], name, folder.path.name)


def daemon(rig: Rig, _rng: random.Random) -> Victim | None:
    """The hub and the leader."""
    return _victim(rig.daemon.pid, "daemon") if rig.daemon.alive else None


def worker(rig: Rig, rng: random.Random) -> Victim | None:
    """One of the workers; the daemon's own is found by what is on file."""
    if rig.workers:
        alive = [w for w in rig.workers.values() if w.alive]
        return _victim(rng.choice(alive).pid, "worker") if alive else None
    record = read_json(rig.workspace.worker / "worker.json") or {}
    pid = int(record.get("pid", 0))
    try:
        is_worker = "worker" in psutil.Process(pid).cmdline() if pid else False
    except psutil.NoSuchProcess:
        return None
    return _victim(pid, "worker") if is_worker else None


def tmux(rig: Rig, _rng: random.Random) -> Victim | None:
    """The lane's tmux server, with everything that it shows."""
    told = rig.tmux("display-message", "-p", "#{pid}")
    return _victim(int(told), "tmux server") if told.isdigit() else None


def front(rig: Rig, rng: random.Random) -> Victim | None:
    """The front process of a swarm server."""
    return _of_role(rig, rng, "server.", "child")


def engine(rig: Rig, rng: random.Random) -> Victim | None:
    """The child process of a swarm server that samples and trains."""
    victim = front(rig, rng)
    if victim is None:
        return None
    try:
        for child in psutil.Process(victim.pid).children(recursive=True):
            if "--fd" in child.cmdline():
                return _victim(child.pid, "engine", victim.attempt_id)
    except psutil.NoSuchProcess:
        return None
    return None


def client(rig: Rig, rng: random.Random) -> Victim | None:
    """A client, or whatever stands in front of it as its walls."""
    return _of_role(rig, rng, "client.", "child")


def evaluator(rig: Rig, rng: random.Random) -> Victim | None:
    """The evaluator of a round that is being played."""
    return _of_role(rig, rng, "evaluator", "child")


def supervisor(rig: Rig, rng: random.Random) -> Victim | None:
    """The keeper of any process."""
    return _of_role(rig, rng, "", "supervisor")


Find = Callable[[Rig, random.Random], Victim | None]
KILLS: dict[str, Find] = {
    "kill -9 daemon": daemon,
    "kill -9 worker": worker,
    "kill -9 tmux server": tmux,
    "kill -9 front": front,
    "kill -9 engine": engine,
    "kill -9 client": client,
    "kill -9 evaluator": evaluator,
    "kill -9 supervisor": supervisor,
}
