"""Named places in front, engine and client where a proof may end the process; without ``arm`` a hit does nothing.

A proof writes one shot into a folder that its processes were armed with (``swarm serve`` reads ``SWARM_TRIGGERS``). The first
process that reaches the shot's point for the nth time claims it, so it fires once, whatever restarts. Standard library only:
everything below ``swarm`` may import this.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

ENVIRONMENT = "SWARM_TRIGGERS"
"""Variable with the folder; read at the edges of the processes only, never by ``hit``."""


class Point(StrEnum):
    """Every trigger point: ``<what>.<where>``. Front first, then the engine's child, then the client."""

    CONFIG_RECORDED = "config.recorded"
    CLIENT_REGISTERED = "register.done"
    GRANT_BEFORE_JOURNAL = "grant.before_journal"
    GRANT_AFTER_JOURNAL = "grant.after_journal"
    CALL_BEGUN = "call.begun"
    CALL_SAMPLED = "call.sampled"
    CALL_COMMITTED = "call.committed"
    FINISH_BEFORE_JOURNAL = "finish.before_journal"
    FINISH_AFTER_JOURNAL = "finish.after_journal"
    FINISH_BEFORE_ANSWER = "finish.before_answer"
    PREPARE_BEFORE_JOURNAL = "prepare.before_journal"
    PREPARE_AFTER_JOURNAL = "prepare.after_journal"
    AGENT_RECORDED = "agent.recorded"
    QUEUE_RECORDED = "queue.recorded"
    LOSS_BEFORE_JOURNAL = "loss.before_journal"
    LOSS_AFTER_JOURNAL = "loss.after_journal"
    EVAL_RECORDED = "eval.recorded"
    STEP_READY = "step.ready"
    STEP_BEFORE_COMMIT = "step.before_commit"
    STEP_AFTER_COMMIT = "step.after_commit"
    STEP_BEFORE_TRAIN = "step.before_train"
    STEP_TRAINED = "step.trained"
    STEP_RECORDED = "step.recorded"
    STEP_OPENED = "step.opened"
    CHECKPOINT_BEFORE_SAVE = "checkpoint.before_save"
    CHECKPOINT_SAVED = "checkpoint.saved"
    CHECKPOINT_RECORDED = "checkpoint.recorded"
    CHECKPOINT_PRUNED = "checkpoint.pruned"
    ENGINE_LOST = "recovery.lost"
    BOOT_BEFORE_ENGINE = "boot.before_engine"
    BOOT_REPLAYED = "boot.replayed"
    BOOT_DONE = "boot.done"
    RESUME_LOADED = "resume.loaded"
    RESUME_ORPHANS_ENDED = "resume.orphans_ended"

    ENGINE_BOOTING = "engine.booting"
    ENGINE_BOOTED = "engine.booted"
    ENGINE_SUBMITTED = "engine.submitted"
    ENGINE_TICK = "engine.tick"
    ENGINE_BEFORE_TRAIN = "engine.before_train"
    ENGINE_TRAINED = "engine.trained"
    ENGINE_BEFORE_SAVE = "engine.before_save"
    SAVE_WRITTEN = "engine.save_written"
    SAVE_HALF_SWAPPED = "engine.save_half_swapped"
    ENGINE_SAVED = "engine.saved"

    CLIENT_GRANTED = "client.granted"
    CLIENT_CHAT_ANSWERED = "client.chat_answered"
    CLIENT_PREPARED = "client.prepared"
    CLIENT_BEFORE_FINISH = "client.before_finish"
    CLIENT_AFTER_FINISH = "client.after_finish"
    CLIENT_BEFORE_ABORT = "client.before_abort"

    @property
    def process(self) -> str:
        """``engine``, ``client`` or ``front``: which process reaches it."""
        head = self.value.partition(".")[0]
        return head if head in ("engine", "client") else "front"


class Action(StrEnum):
    """What happens at the point."""

    KILL = "kill"  # SIGKILL of the process that reached it
    STOP = "stop"  # SIGSTOP: alive, and says nothing more
    RAISE = "raise"  # an exception that nobody expects
    NOTE = "note"  # nothing; the claim shows that the point was reached


class Triggered(Exception):
    """What ``Action.RAISE`` raises."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One planned fault."""

    name: str
    """Unique within the folder; the claimed file bears it."""
    point: Point
    action: Action = Action.KILL
    nth: int = 1
    """It fires at the nth time that one process reaches the point, counted from when the shot was loaded."""


_armed: Callable[[Point], None] | None = None


def hit(point: Point) -> None:
    """Say that ``point`` was reached. Costs one comparison unless the process is armed.

    Raises:
        Triggered: a shot for this point says so.
    """
    if _armed is not None:
        _armed(point)


def arm(folder: str | Path) -> None:
    """Let shots in ``folder`` (made if absent) fire in this process; an empty string does nothing. Call it at an edge."""
    global _armed
    if folder:
        _armed = _Folder(Path(folder))


@contextmanager
def armed(folder: Path) -> Generator[None]:
    """Let shots in ``folder`` fire in this process until the block ends."""
    with _instead(_Folder(folder)):
        yield


@contextmanager
def recording() -> Generator[list[Point]]:
    """Collect the points that this process reaches in the block; nothing fires."""
    seen: list[Point] = []
    with _instead(seen.append):
        yield seen


@contextmanager
def _instead(told: Callable[[Point], None]) -> Generator[None]:
    global _armed
    before, _armed = _armed, told
    try:
        yield
    finally:
        _armed = before


def load(folder: Path, shot: Shot) -> None:
    """Put ``shot`` in place of whatever was loaded; it is there as a whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{shot.name}.draft"
    draft.write_text(json.dumps(asdict(shot)), encoding="utf-8")
    draft.replace(_loaded(folder))


def unload(folder: Path) -> bool:
    """Take the loaded shot away; False when there was none (it has fired)."""
    try:
        _loaded(folder).unlink()
    except FileNotFoundError:
        return False
    return True


def fired(folder: Path, name: str) -> int | None:
    """Process id of who claimed the shot of that name, just before the act; None = nobody yet."""
    try:
        return int(_claimed(folder, name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _loaded(folder: Path) -> Path:
    return folder / "shot.json"


def _claimed(folder: Path, name: str) -> Path:
    return folder / f"fired-{name}"


class _Folder:
    """Looks for a shot at each hit; a stat is all that it costs while there is none for the point."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._mark = (0, 0)
        self._shot: Shot | None = None
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, point: Point) -> None:
        with self._lock:
            shot = self._due(point)
        if shot is not None:
            _act(shot)

    def _due(self, point: Point) -> Shot | None:
        try:
            found = _loaded(self._folder).stat()
            mark = (found.st_ino, found.st_mtime_ns)
            if mark != self._mark:
                self._mark, self._count, self._shot = mark, 0, _read(_loaded(self._folder))
        except FileNotFoundError:
            return None
        shot = self._shot
        if shot is None or shot.point is not point:
            return None
        self._count += 1
        return shot if self._count == shot.nth and self._claim(shot) else None

    def _claim(self, shot: Shot) -> bool:
        try:
            _loaded(self._folder).rename(self._folder / f".{shot.name}.claimed")
        except FileNotFoundError:
            return False
        draft = self._folder / f".{shot.name}.pid"
        draft.write_text(str(os.getpid()), encoding="utf-8")
        draft.replace(_claimed(self._folder, shot.name))
        return True


def _read(path: Path) -> Shot:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Shot(raw["name"], Point(raw["point"]), Action(raw["action"]), int(raw["nth"]))


def _act(shot: Shot) -> None:
    if shot.action is Action.RAISE:
        raise Triggered(f"shot {shot.name!r} at {shot.point.value!r}")
    if shot.action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif shot.action is Action.STOP:
        os.kill(os.getpid(), signal.SIGSTOP)
