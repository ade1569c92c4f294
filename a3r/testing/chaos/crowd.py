"""A crowd of scripted workers over real HTTP, as many as a cluster has: what one hub on SQLite bears, measured."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from a3r.core.errors import A3RError, HubUnreachable
from a3r.core.wire import AttemptSpec
from a3r.testing.scripted_worker import ScriptedWorker
from a3r.worker.hub_client import HubClient

CLAIM_WAIT_S = 2.0
"""As the real worker asks."""
JOIN_S = 60.0
LOG_BYTES = 16_384
NAP_S = 0.02
"""Between two looks of the thread that measures how late the crowd's own threads get their turn."""


@dataclass
class Seen:
    """What the crowd measured; filled from many threads."""

    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Kind of request -> seconds of each; claims: only those that brought an attempt, a worker's first one apart."""
    lag: list[float] = field(default_factory=list[float])
    """Seconds by which a thread of this process that slept ``NAP_S`` came late: what the crowd itself adds to any time here."""
    played: list[str] = field(default_factory=list[str])
    """Attempts that were given out, in order of their end."""
    errors: Counter[str] = field(default_factory=Counter[str])
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def timed(self, kind: str) -> Generator[Callable[[], None]]:
        """Measure the block; it is dropped when the block calls what it is given."""
        keep = [True]
        began = time.perf_counter()
        yield lambda: keep.__setitem__(0, False)
        took = time.perf_counter() - began
        if keep[0]:
            self.took(kind, took)

    def took(self, kind: str, seconds: float) -> None:
        """Note one request."""
        with self._lock:
            self.seconds.setdefault(kind, []).append(max(0.0, seconds))

    def failed(self, error: Exception) -> None:
        """Count an error."""
        with self._lock:
            cause = type(error.__cause__).__name__ if error.__cause__ is not None else "its answer"
            self.errors[f"{type(error).__name__} ({cause})"] += 1

    def done(self, attempt_id: str) -> None:
        """Note an attempt's end."""
        with self._lock:
            self.played.append(attempt_id)


@dataclass
class Crowd:
    """``count`` workers with one slot each; two threads a worker, as a real one has more."""

    connect: Callable[[str], HubClient]
    """A worker's name -> its way to the hub."""
    count: int
    hold_s: float
    """How long an attempt lasts."""
    heartbeat_s: float
    seen: Seen = field(default_factory=Seen)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def start(self) -> None:
        """Begin."""
        for number in range(self.count):
            one = _Member(self, name_of(number), random.Random(number))  # noqa: S311
            self._begin(one.work, one.beat)
        self._begin(self._measure_lag)

    def _begin(self, *loops: Callable[[], None]) -> None:
        for loop in loops:
            thread = threading.Thread(target=loop, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _measure_lag(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            self._over.wait(NAP_S)
            self.seen.lag.append(time.perf_counter() - began - NAP_S)

    def stop(self) -> None:
        """Let everybody finish what they say, and end."""
        self._over.set()
        for thread in self._threads:
            thread.join(JOIN_S)

    @property
    def over(self) -> threading.Event:
        """Set once it shall end."""
        return self._over


def name_of(number: int) -> str:
    """Id of a member."""
    return f"crowd-{number:03}"


class _Member:
    def __init__(self, crowd: Crowd, name: str, rng: random.Random) -> None:
        self._crowd, self._rng = crowd, rng
        self._worker = ScriptedWorker(crowd.connect(name), name, inventory={"cpus": 8, "gpus": []})
        self._held: AttemptSpec | None = None
        self._step, self._begun = 0, False

    def work(self) -> None:
        """Claim, hold, send everything, again and again."""
        over, seen = self._crowd.over, self._crowd.seen
        over.wait(self._rng.uniform(0, self._crowd.heartbeat_s))
        while not over.is_set():
            try:
                with seen.timed("register"):
                    self._worker.register()
                break
            except A3RError as error:
                self._trouble(error)
        while not over.is_set():
            try:
                self._once(seen, over)
            except A3RError as error:
                self._trouble(error)

    def _once(self, seen: Seen, over: threading.Event) -> None:
        with seen.timed("claim" if self._begun else "claim, first") as drop:
            spec = self._worker.claim(CLAIM_WAIT_S, held=[])
            if spec is None:
                drop()
        if spec is None:
            return
        self._held, self._step, self._begun = spec, 0, True
        self._send("events", lambda: self._worker.send_events(spec, 8))
        over.wait(self._rng.uniform(0.5, 1.5) * self._crowd.hold_s / 2)
        self._send("steps", lambda: self._worker.send_steps(spec))
        self._step = 1
        over.wait(self._rng.uniform(0.5, 1.5) * self._crowd.hold_s / 2)
        self._send("log", lambda: self._worker.send_log(spec, b"." * LOG_BYTES))
        self._send("rounds and finish", lambda: self._worker.play(spec))
        self._held = None
        seen.done(spec.attempt_id)

    def _send(self, kind: str, send: Callable[[], None]) -> None:
        """Again and again while the hub does not answer: evidence is kept until it has arrived."""
        while not self._crowd.over.is_set():
            try:
                with self._crowd.seen.timed(kind):
                    send()
            except HubUnreachable as error:
                self._trouble(error)
            else:
                return

    def beat(self) -> None:
        """Renew the lease on a clock of its own, held open for commands as real heartbeats are."""
        over, seen = self._crowd.over, self._crowd.seen
        over.wait(self._rng.uniform(0, self._crowd.heartbeat_s))
        while not over.is_set():
            spec = self._held
            began = time.monotonic()
            try:
                wait_s = self._crowd.heartbeat_s if spec is not None else 0.0
                self._worker.beat(*([spec] if spec else []), step=self._step, wait_s=wait_s)
                seen.took("heartbeat, beyond its wait", time.monotonic() - began - wait_s)
            except A3RError as error:
                self._trouble(error)
            over.wait(max(0.05, self._crowd.heartbeat_s - (time.monotonic() - began)))

    def _trouble(self, error: A3RError) -> None:
        self._crowd.seen.failed(error)
        if isinstance(error, HubUnreachable):
            self._crowd.over.wait(0.5)
