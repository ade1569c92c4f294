"""A client that leaves processes behind in every way there is, is deaf to SIGTERM and floods its log, with walls and without."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable
from dataclasses import replace

from a3r.core.types import RunState
from a3r.testing.chaos.audit import audit, with_mark
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.rig import Rig, Times, rig
from a3r.testing.chaos.targets import living
from a3r.worker.processes import read_json
from a3r.worker.supervisor import ROTATE_BYTES, send, start_time

ESCAPES = 3
"""Processes that want to get away, of each start of the client."""
SPAM_MB = 100
MOST_LOG_BYTES = 3 * ROTATE_BYTES + 2**20
STUDY = Study(seeds=1, steps=16, capacity=1)


def play_wild(play: Play) -> None:
    """One campaign each: with and without walls, to a quiet end, over a supervisor's death, over a cancelled run."""
    endings: dict[str, Callable[[Play, Running], None]] = {
        "its run is cancelled": _cancel,
        "its supervisor is killed": _kill_supervisor,
        "its worker is killed too": _kill_both,
    }
    for walls in ("auto", "off"):
        for what, ending in endings.items():
            with Running(play, walls, what) as running:
                running.play(ending)
        _flood(play, walls)


class Running:
    """A campaign whose client tries to get away, from its start to its audit."""

    def __init__(self, play: Play, walls: str, what: str) -> None:
        self._play = play
        self.what = f"{what}, walls {walls}"
        self.mark = f"a3r-escapee-{secrets.token_hex(6)}"
        mischief = {"pause_s": 0.3, "deaf": True, "escape": self.mark}
        settings = {"client.sandbox.mode": walls}
        self._study = replace(STUDY, mischief=mischief, settings=settings)
        self._made = rig(play.folder / secrets.token_hex(3), Times())
        self.cancelled: set[str] = set()

    def __enter__(self) -> Running:
        """Nothing runs yet."""
        self.rig = self._made.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End all of it."""
        for pid in with_mark(self.mark):
            send(pid, start_time(pid), signal.SIGKILL)
        self._made.__exit__(None, None, None)

    def play(self, ending: Callable[[Play, Running], None]) -> None:
        """File, misbehave, break, finish, audit."""
        running = self.rig
        project = running.workspace.project
        running.campaign_id = file_campaign(running.store, self._study, project)
        running.local_worker(slots=1)
        running.wait(lambda: len(with_mark(self.mark)) >= ESCAPES, "the client's escapees")
        running.wait(lambda: running.mark() > 1, "it trains")
        running.surround()
        ending(self._play, self)
        finish(running)
        audit(
            running,
            self._play.outcome.findings,
            marks=[self.mark],
            cancelled=self.cancelled,
        )

    def gone(self, pids: list[int]) -> bool:
        """Whether none of these live."""
        return not set(pids) & set(with_mark(self.mark))


def _cancel(play: Play, running: Running) -> None:
    rig_ = running.rig
    attempt = next(a for a in rig_.attempts() if a.ended_at is None)
    escaped = with_mark(running.mark)
    with play.fault("client that forks, scrubs and is deaf", running.what):
        running.cancelled.add(attempt.run_id)
        with rig_.hub() as hub:
            hub.post(f"runs/{attempt.run_id}/cancel")
        rig_.wait(
            lambda: rig_.store.run(attempt.run_id).state is RunState.CANCELLED, "it is cancelled"
        )
        rig_.wait(lambda: running.gone(escaped), "what got away is ended")


def _kill_supervisor(play: Play, running: Running) -> None:
    escaped = with_mark(running.mark)
    with play.fault("client that forks, scrubs and is deaf", running.what):
        _kill_client_supervisor(running.rig)
        running.rig.wait(lambda: running.gone(escaped), "what got away is ended")


def _kill_both(play: Play, running: Running) -> None:
    escaped = with_mark(running.mark)
    with play.fault("client that forks, scrubs and is deaf", running.what):
        running.rig.workers["worker"].away()
        _kill_client_supervisor(running.rig)
        running.rig.workers["worker"].back()
        running.rig.wait(lambda: running.gone(escaped), "what got away is ended")


def _kill_client_supervisor(running: Rig) -> None:
    for _, process in living(running):
        record = read_json(process.folder / "start.json")
        if process.name.startswith("client.") and record is not None:
            who = record["supervisor"]
            send(int(who["pid"]), who["start_time"], signal.SIGKILL)


def _flood(play: Play, walls: str) -> None:
    mischief = {"spam_mb": SPAM_MB, "deaf": True}
    settings = {"client.sandbox.mode": walls}
    study = replace(STUDY, steps=3, mischief=mischief, settings=settings)
    with rig(play.folder / f"flood-{walls}", Times()) as running:
        project = running.workspace.project
        running.campaign_id = file_campaign(running.store, study, project)
        running.local_worker(slots=1)
        with play.fault("client that spams its log", f"{SPAM_MB} MB, walls {walls}"):
            running.wait(lambda: any(a.ended_at for a in running.attempts()), "a run ends anyway")
        finish(running)
        audit(running, play.outcome.findings)
        for attempt in running.attempts():
            folder = running.folder(attempt.id)
            assert folder is not None
            size = sum(p.stat().st_size for p in (folder.path / "logs").iterdir())
            if not SPAM_MB * 2**19 < size < MOST_LOG_BYTES:
                play.outcome.findings.wrong.append(f"the logs of {attempt.id} take {size} bytes")
