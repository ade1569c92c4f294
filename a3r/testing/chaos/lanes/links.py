"""A hub that is away, and a link that lets nothing through: training goes on, nothing is given up, and whoever comes back is adopted."""

from __future__ import annotations

import time

from a3r.core.types import AttemptState
from a3r.testing.chaos.audit import audit
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.rig import Rig, Times, rig
from a3r.testing.chaos.targets import living
from a3r.testing.sshd import Wire
from a3r.worker.processes import read_json

LEASE_S = 3.0
TIMES = Times(heartbeat_s=0.5, lease_s=LEASE_S)


def play_outages(play: Play) -> None:
    """One worker behind a wire: the daemon is dead for longer than every lease, then the wire is cut for as long."""
    study = Study(seeds=1, steps=100 + 150 * play.times(2), mischief={"pause_s": 0.25})
    with rig(play.folder, TIMES) as running:
        running.campaign_id = file_campaign(running.store, study, play.folder)
        wire = Wire(running.port())
        try:
            running.distant_worker("distant", f"http://127.0.0.1:{wire.port}", slots=2)
            running.wait(lambda: in_state(running, AttemptState.RUNNING) == 2, "both attempts run")
            running.wait(lambda: running.mark() > 3, "they train")
            running.surround()
            for number in range(play.times(2)):
                _hub_outage(play, running, kill_worker=number % 2 == 1)
                blocked(play, running, wire, "a blocked link")
            finish(running)
        finally:
            wire.close()
        audit(running, play.outcome.findings)


def in_state(running: Rig, state: AttemptState) -> int:
    """How many attempts are in this state for the hub."""
    return sum(a.state is state for a in running.attempts())


def _hub_outage(play: Play, running: Rig, *, kill_worker: bool) -> None:
    kind = "hub away longer than every lease"
    with play.fault(kind, "and its worker killed" if kill_worker else ""):
        before, trained = servers(running), steps_there(running)
        running.daemon.away()
        until = time.monotonic() + 3 * LEASE_S
        if kill_worker:
            running.workers["distant"].kill()
        running.wait(
            lambda: time.monotonic() > until and steps_there(running) > trained,
            "training goes on without the hub",
        )
        since = running.mark()
        running.daemon.back()
        running.wait(lambda: running.mark() > since, "the hub hears of what happened meanwhile")
        untouched(play, running, before, kind)
    if in_state(running, AttemptState.UNREACHABLE):
        running.wait(
            lambda: not in_state(running, AttemptState.UNREACHABLE), "unreachable ones are adopted"
        )


def blocked(play: Play, running: Rig, wire: Wire, kind: str) -> None:
    """Cut the wire until the hub calls every attempt unreachable, and join it again."""
    with play.fault(kind):
        before, trained = servers(running), steps_there(running)
        held = in_state(running, AttemptState.RUNNING)
        wire.block()
        running.wait(
            lambda: in_state(running, AttemptState.UNREACHABLE) >= max(1, held),
            "what nobody hears of is called unreachable",
        )
        running.wait(lambda: steps_there(running) > trained, "training goes on behind the cut")
        wire.unblock()
        running.wait(
            lambda: not in_state(running, AttemptState.UNREACHABLE), "unreachable ones are adopted"
        )
        untouched(play, running, before, kind)


def servers(running: Rig) -> dict[str, int]:
    """Attempt -> pid of its server."""
    found: dict[str, int] = {}
    for folder, process in living(running):
        record = read_json(process.folder / "start.json")
        if process.name.startswith("server.") and record is not None:
            found[folder.path.name] = int(record["child"]["pid"])
    return found


def steps_there(running: Rig) -> int:
    """Steps that the workers have on file, whatever the hub knows."""
    folders = [running.folder(a.id) for a in running.attempts()]
    return sum(len(f.steps()) for f in folders if f is not None)


def untouched(play: Play, running: Rig, before: dict[str, int], kind: str) -> None:
    """Every server that trained before still does, as the same process."""
    now = servers(running)
    over = {a.id for a in running.attempts() if a.ended_at is not None}
    finished = {i for i in before if i in over or _is_finishing(running, i)}
    play.outcome.findings.lost += [
        f"{kind}: the server of {i} (pid {pid}) is another one now"
        for i, pid in before.items()
        if now.get(i) != pid and i not in finished
    ]


def _is_finishing(running: Rig, attempt_id: str) -> bool:
    folder = running.folder(attempt_id)
    return folder is not None and folder.memo().phase in ("stopping", "finished")
