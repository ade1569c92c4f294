"""The faults: each happens once to a running world, and says when it has happened."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from swarm.client import calls
from swarm.client.client import SwarmClient
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import SwarmError
from swarm.testing.chaos.orders import Mischief, Part
from swarm.testing.chaos.processes import engine_of
from swarm.testing.chaos.proxy import Trouble
from swarm.testing.chaos.rig import Rig, Stuck
from swarm.testing.chaos.server import set_jump
from swarm.triggers import Action, Point, Shot, fired, load, unload

FIRE_S = 60.0
PROVOKE_S = 8.0
PROVOCATIONS = 6
STOPPED_S = 1.0
"""A stopped process is taken for dead after this (front and client; the front itself watches over its engine)."""
PAUSE_S = 1.2


class Fault(Protocol):
    """One thing that goes wrong."""

    @property
    def kind(self) -> str:
        """Which line of the table it counts in."""
        ...

    def inject(self, rig: Rig) -> None:
        """Return when it has happened; ``Stuck`` when it could not be made to."""
        ...


class Provoke(StrEnum):
    """What must happen first so that a point is reached."""

    NOTHING = "nothing"
    FRONT = "front"  # the server is killed
    ENGINE = "engine"  # the engine is killed
    CHECKPOINT = "checkpoint"  # the current weights are saved, and again
    CONFIG = "config"  # a key that may change while training goes on is changed


@dataclass(frozen=True, slots=True)
class ShotFault:
    """A shot at a trigger point."""

    point: Point
    action: Action = Action.KILL
    nth: int = 1
    provoke: Provoke = Provoke.NOTHING

    def __str__(self) -> str:
        """In a few words."""
        which = f" (passing {self.nth})" if self.nth > 1 else ""
        return f"{self.action.value} at {self.point.value}{which}"

    @property
    def kind(self) -> str:
        """Action and process."""
        return f"{self.action.value} {self.point.process}"

    def inject(self, rig: Rig) -> None:
        """Load the shot and wait until it is claimed, provoking as often as it takes."""
        name = f"{time.monotonic_ns():x}"
        load(rig.shots, Shot(name, self.point, self.action, self.nth))
        try:
            if self.provoke is Provoke.NOTHING:
                rig.wait(
                    lambda: fired(rig.shots, name) or rig.over,
                    f"a shot at {self.point.value}",
                    FIRE_S,
                )
                if not fired(rig.shots, name):
                    raise Stuck(f"training was over before {self}: give the lane more steps")
            else:
                self._provoke_until_fired(rig, name)
        finally:
            unload(rig.shots)
        if self.action is Action.STOP:
            self._after_stop(rig, fired(rig.shots, name) or 0)

    def _provoke_until_fired(self, rig: Rig, name: str) -> None:
        for _ in range(PROVOCATIONS):
            before = rig.answered()
            self._provoke(rig)
            with suppress(Stuck):
                rig.wait(lambda: fired(rig.shots, name), f"a shot at {self.point.value}", PROVOKE_S)
                return
            rig.wait_for_progress(before, f"provoking {self.point.value}")
        raise Stuck(f"{self.point.value} was not reached\n{rig.describe()}")

    def _provoke(self, rig: Rig) -> None:
        if self.provoke is Provoke.FRONT:
            rig.server.kill()
        elif self.provoke is Provoke.CHECKPOINT:
            with suppress(SwarmError):
                rig.admin.save_checkpoint()
                rig.admin.save_checkpoint()
        elif self.provoke is Provoke.CONFIG:
            with suppress(SwarmError):
                _change_config(rig)
        else:
            rig.wait(lambda: engine_of(rig.server), "an engine process")
            _signal(engine_of(rig.server), signal.SIGKILL)

    def _after_stop(self, rig: Rig, pid: int) -> None:
        if self.point.process == "engine":
            return  # the front notices by itself
        _tend_for(rig, STOPPED_S)
        if pid == rig.server.pid:
            rig.server.kill()
        for player in rig.players:
            if pid == player.pid:
                player.kill()


@dataclass(frozen=True, slots=True)
class Pause:
    """A process stands still for a moment and goes on, as on a laptop that slept: nothing may come of it."""

    who: str
    """``front``, ``engine`` or ``client``."""

    @property
    def kind(self) -> str:
        """By process."""
        return f"pause {self.who}"

    def inject(self, rig: Rig) -> None:
        """SIGSTOP, a while, SIGCONT."""
        rig.wait(lambda: self._pid(rig), f"a {self.who}")
        pid = self._pid(rig)
        _signal(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        _signal(pid, signal.SIGCONT)

    def _pid(self, rig: Rig) -> int | None:
        if self.who == "engine":
            return engine_of(rig.server)
        return rig.server.pid if self.who == "front" else rig.players[0].pid


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The agent's tool server or sandbox dies, hangs or lies in the middle of an episode."""

    part: Part
    mischief: Mischief

    @property
    def kind(self) -> str:
        """Part and mischief."""
        return f"{self.part.value} {self.mischief.value}s"

    def inject(self, rig: Rig) -> None:
        """Leave the order and wait until it is taken."""
        rig.orders.give(self.part, self.mischief)
        rig.wait(lambda: not rig.orders.pending(self.part), f"an order to the {self.part.value}")


@dataclass(frozen=True, slots=True)
class Network:
    """One request meets trouble on its way."""

    trouble: Trouble
    match: str

    @property
    def kind(self) -> str:
        """By trouble."""
        return f"network: {self.trouble.value}"

    def inject(self, rig: Rig) -> None:
        """Order it and wait for its request."""
        proxy = rig.proxy
        assert proxy is not None
        proxy.order(self.trouble, self.match)
        try:
            rig.wait(lambda: not proxy.pending, f"a request to {self.match}", FIRE_S)
        finally:
            proxy.cancel()


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The machine's wall clock is set ahead or back."""

    seconds: float

    @property
    def kind(self) -> str:
        """By direction."""
        return f"clock {'ahead' if self.seconds > 0 else 'back'}"

    def inject(self, rig: Rig) -> None:
        """Jump; the next jump starts from the true time."""
        set_jump(rig.clock_file, self.seconds)


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The disk of the state folder is full for a while."""

    full_s: float = 0.5

    @property
    def kind(self) -> str:
        """One kind."""
        return "disk full"

    def inject(self, rig: Rig) -> None:
        """Fill it, wait until the server says so, wait a little more, free it."""
        disk = rig.disk
        assert disk is not None
        disk.fill()
        try:
            rig.wait(rig.complains, "a word of the server about its full disk", FIRE_S)
            _tend_for(rig, self.full_s)
        finally:
            disk.free()


@dataclass(frozen=True, slots=True)
class StaleFinishes:
    """Old finishes arrive again, newest first and at once, with rewards that were never meant."""

    seed: int
    count: int = 6

    @property
    def kind(self) -> str:
        """One kind."""
        return "stale finishes"

    def inject(self, rig: Rig) -> None:
        """Send them over connections of their own; each must be told what the first was told."""
        rig.wait(lambda: len(rig.claims()) >= self.count or rig.over, "some finishes")
        known = [c for c in rig.claims().values() if c.answered]
        rng = random.Random(self.seed)  # noqa: S311 - mischief, not a secret
        chosen = rng.sample(known[-40:], min(self.count, len(known[-40:])))
        wrong: list[str] = []

        def send(episode_id: str, reward: float, accepted: bool) -> None:
            with SwarmClient(rig.direct_url, rig.tokens.client, timeout_s=20.0) as client:
                call = calls.finish(episode_id, FinishRequest(reward=reward))
                try:
                    if client.send(call).accepted is not accepted:
                        wrong.append(episode_id)
                except SwarmError as error:
                    wrong.append(f"{episode_id}: {error.message}")

        _at_once([lambda c=c: send(c.episode_id, c.reward + 1.0, c.accepted) for c in chosen])
        if wrong:
            raise Stuck(f"a repeated finish was answered otherwise: {wrong}")


def _change_config(rig: Rig) -> None:
    """Change how long a drain waits, which changes nothing else."""
    config = rig.admin.config().model_dump(mode="json")
    config["batch"]["drain_deadline_s"] += 0.125
    rig.admin.configure(config)


def _at_once(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _tend_for(rig: Rig, seconds: float) -> None:
    until = time.monotonic() + seconds
    with suppress(Stuck):
        rig.wait(lambda: time.monotonic() >= until, "a while", seconds + 1)
