"""A host over SSH, with a real sshd on loopback and a network in between that lets nothing through for a while."""

from __future__ import annotations

import sys
from pathlib import Path

from a3r.core.types import AttemptState
from a3r.hosts.adding import Adding
from a3r.hosts.options import HostOptions, known_hosts
from a3r.testing.chaos.audit import audit
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.lanes.links import TIMES, blocked, in_state
from a3r.testing.chaos.rig import Rig, rig
from a3r.testing.sshd import Sshd, Wire, missing

NAME = "far"


def lacks() -> str:
    """Programs that this machine has not."""
    return " ".join(["needs", *missing()]) if missing() else ""


def play_tunnel(play: Play) -> None:
    """The daemon's own link to a host that was added: cut twice, and the daemon behind it killed."""
    study = Study(seeds=1, steps=100 + 100 * play.times(2), mischief={"pause_s": 0.25})
    keys = play.folder / "sshd"
    keys.mkdir()
    with rig(play.folder, TIMES) as running, _sshd(keys, running).running() as sshd:
        wire = Wire(sshd.port)
        sshd.reach(wire.port)
        running.campaign_id = file_campaign(running.store, study, play.folder)
        home = _add_host(running, sshd, play.folder / "there")
        running.homes[NAME] = home
        try:
            running.wait(lambda: in_state(running, AttemptState.RUNNING), "an attempt runs there")
            running.wait(lambda: running.mark() > 3, "it trains")
            running.surround()
            for _ in range(play.times(2)):
                blocked(play, running, wire, "a blocked SSH link")
            with play.fault("kill -9 daemon that holds the SSH link"):
                running.daemon.kill()
                since = running.mark()
                running.wait(lambda: running.mark() > since, "the link is made again")
            finish(running)
        finally:
            wire.unblock()
            _remove(running)
            wire.close()
        audit(running, play.outcome.findings)


def _sshd(keys: Path, running: Rig) -> Sshd:
    """An sshd whose sessions show their windows in this lane's own tmux."""
    sshd = Sshd(keys)
    with (keys / "sshd_config").open("a", encoding="utf-8") as file:
        file.write(f"SetEnv TMUX_TMPDIR={running.environ['TMUX_TMPDIR']} OMP_NUM_THREADS=1\n")
    return sshd


def _add_host(running: Rig, sshd: Sshd, folder: Path) -> Path:
    """As ``a3r host add far --python ...`` does; returns the ``.a3r`` folder of its worker."""
    running.port()
    options = HostOptions(
        folder=str(folder), python=sys.executable, slots=2, config=str(sshd.config), alive_s=60
    )
    ssh = options.ssh(NAME, known_hosts(running.workspace))
    told: list[str] = []
    adding = Adding(NAME, ssh, options, accept=sshd.fingerprint, say=told.append)
    with running.hub() as hub:
        adding.run(hub)
    return folder / ".a3r"


def _remove(running: Rig) -> None:
    """The host's worker leaves, as after ``a3r host remove``."""
    with running.hub() as hub:
        hub.post(f"hosts/{NAME}/state", {"state": "removed"})
    running.wait(lambda: not running.store.hosts(), "the host's worker has left", 60.0)
