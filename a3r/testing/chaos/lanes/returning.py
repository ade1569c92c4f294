"""Attempts that were given up and come back: at most one result of a run is ever accepted, the other is kept as evidence."""

from __future__ import annotations

from a3r.core.types import AttemptState
from a3r.store.rows import AttemptRow
from a3r.testing.chaos.audit import audit
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.rig import Rig, Times, rig
from a3r.testing.sshd import Wire
from a3r.worker.folder import AttemptFolder
from a3r.worker.processes import read_json

TIMES = Times(heartbeat_s=0.5, lease_s=3.0, lost_after_s=3.0)


def play_returning(play: Play) -> None:
    """A worker falls silent until its attempt is lost, and comes back when another worker may have the run already."""
    study = Study(seeds=2, steps=40, mischief={"pause_s": 0.2})
    with rig(play.folder, TIMES) as running:
        running.campaign_id = file_campaign(running.store, study, play.folder)
        wire = Wire(running.port())
        try:
            running.distant_worker("silent", f"http://127.0.0.1:{wire.port}")
            running.distant_worker("other", f"http://127.0.0.1:{running.port()}")
            for finished in (False, True):
                _come_back(play, running, wire, finished=finished)
            finish(running)
        finally:
            wire.close()
        audit(running, play.outcome.findings, attempts_a_run=3)


def _come_back(play: Play, running: Rig, wire: Wire, *, finished: bool) -> None:
    first, folder = _training(running)
    running.surround()
    late = len(_late_results(running))
    what = "it has finished meanwhile" if finished else "it still trains"
    with play.fault("a lost attempt comes back", what):
        wire.block()
        running.wait(lambda: _state(running, first) is AttemptState.LOST, "it is given up")
        if finished:
            running.wait(lambda: folder.finish() is not None, "it ends behind the cut")
        wire.unblock()
        running.wait(lambda: folder.memo().phase == "finished", "it is stopped")
        running.wait(lambda: _is_refused(folder), "its results are refused")
    # Whichever came first: the hub refused what was sent and noted it, or told the worker, which kept it.
    if len(_late_results(running)) <= late and folder.finish() is None:
        play.outcome.findings.lost.append(f"{first.id}: what came too late was not kept")


def _training(running: Rig) -> tuple[AttemptRow, AttemptFolder]:
    """An attempt of the worker that will fall silent, and its folder."""
    runs = running.homes["silent"] / "runs"
    found: list[AttemptRow] = []

    def look() -> bool:
        mine = [a for a in running.attempts() if (runs / a.id / "attempt.json").exists()]
        found[:] = [a for a in mine if a.state is AttemptState.RUNNING and a.step]
        return bool(found)

    running.wait(look, "an attempt trains")
    return found[0], AttemptFolder.of(runs, found[0].id)


def _is_refused(folder: AttemptFolder) -> bool:
    return bool((read_json(folder.path / "uplink.json") or {}).get("refused"))


def _state(running: Rig, attempt: AttemptRow) -> AttemptState:
    return running.store.attempt(attempt.id).state


def _late_results(running: Rig) -> list[int]:
    found: list[int] = []
    after = 0
    while page := running.store.events(running.campaign_id, after):
        after = page[-1].seq
        found += [e.seq for e in page if e.kind == "late_result"]
    return found
