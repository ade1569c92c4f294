"""One lane's world: a workspace with its daemon, workers and tmux, kept running as a person or a service manager would keep them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from a3r.core.errors import A3RError
from a3r.core.types import CampaignState
from a3r.core.workspace import Workspace
from a3r.hub.client import HubClient
from a3r.hub.ready import read_ready
from a3r.hub.tokens import HubTokens
from a3r.store.rows import AttemptRow
from a3r.store.store import Store
from a3r.testing.chaos.bystanders import Bystanders
from a3r.testing.chaos.programs import Program, python
from a3r.worker.folder import AttemptFolder
from a3r.worker.processes import sweep
from a3r.worker.supervisor import NONCE

LOOK_S = 0.1
STUCK_S = 300.0
"""Longest wait for one thing to happen. Machines that run many of these at once are slow."""
TMUX_SOCKET = "a3r"
OVER = (CampaignState.DONE, CampaignState.STOPPED)


class Stuck(Exception):
    """Something did not happen in time; the text says what was there instead."""


@dataclass(frozen=True)
class Times:
    """The hub's clocks, in seconds; short, so that a lane sees every state."""

    heartbeat_s: float = 0.5
    lease_s: float = 6.0
    lost_after_s: float = 600.0


@dataclass
class Rig:
    """The programs and the database of one lane."""

    workspace: Workspace
    environ: dict[str, str]
    daemon: Program
    bystanders: Bystanders
    store: Store
    campaign_id: str = ""
    workers: dict[str, Program] = field(default_factory=dict[str, Program])
    homes: dict[str, Path] = field(default_factory=dict[str, Path])
    """Name of a worker -> the folder with its ``runs``."""
    own_worker: bool = False
    """Whether the daemon keeps one by itself."""

    # -- programs ---------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Start again whoever is dead and wanted."""
        for program in (self.daemon, *self.workers.values()):
            program.keep()

    def add_worker(self, name: str, command: list[str], home: Path) -> Program:
        """A worker that is kept running from the next ``tend`` on; its attempts are in ``home``."""
        log = self.workspace.project / f"{name}.log"
        self.workers[name] = Program(name, command, log, self.environ)
        self.homes[name] = home
        return self.workers[name]

    def local_worker(self, *, slots: int = 2) -> Program:
        """The worker of the workspace itself."""
        root = self.workspace.root
        arguments = ("worker", "start", "--workspace", root, "--slots", slots)
        return self.add_worker("worker", python("a3r", *arguments), root)

    def distant_worker(self, name: str, url: str, *, slots: int = 1) -> Program:
        """A worker of another host: a workspace folder of its own, and an address."""
        home = self.workspace.project / name / ".a3r"
        home.mkdir(parents=True, exist_ok=True)
        token = self.workspace.daemon / "worker.token"
        arguments = ("worker", "start", "--workspace", home, "--slots", slots)
        where = ("--hub", url, "--token-file", token)
        return self.add_worker(name, python("a3r", *arguments, *where), home)

    # -- what is there ----------------------------------------------------------------------------------------

    def hub(self) -> HubClient:
        """The person's way to the daemon; Stuck while there is none."""
        ready = read_ready(self.workspace.daemon)
        if ready is None or not ready.pid:
            raise Stuck("the daemon has not said where it listens")
        return HubClient(ready.url, HubTokens.read(self.workspace.daemon).admin)

    def answers(self) -> bool:
        """Whether the daemon answers."""
        try:
            with self.hub() as hub:
                return bool(hub.get("daemon"))
        except (A3RError, Stuck):
            return False

    def port(self) -> int:
        """Where the daemon listens, once it does; it comes back there after a kill."""
        self.wait(self.answers, "the daemon answers")
        ready = read_ready(self.workspace.daemon)
        assert ready is not None
        return ready.port

    def attempts(self) -> list[AttemptRow]:
        """Those of the campaign."""
        return self.store.attempts(self.campaign_id) if self.campaign_id else []

    def folder(self, attempt_id: str) -> AttemptFolder | None:
        """Where the attempt runs or ran; None when no worker has begun it."""
        for home in dict.fromkeys(self.homes.values()):
            folder = AttemptFolder.of(home / "runs", attempt_id)
            if (folder.path / "attempt.json").exists():
                return folder
        return None

    def surround(self) -> None:
        """Start bystanders that look like what the attempts have running now."""
        for attempt in self.attempts():
            if attempt.ended_at is None and self.folder(attempt.id) is not None:
                self.bystanders.resemble(attempt.nonce, attempt.id)

    def mark(self, attempt_id: str = "") -> int:
        """Grows with everything that an attempt (empty: any) can show: steps, rounds, its end."""
        count = 0
        for attempt in self.attempts():
            if attempt_id not in ("", attempt.id):
                continue
            count += len(self.store.steps(attempt.id)) + len(self.store.eval_rounds(attempt.id))
            count += 1 if attempt.ended_at is not None else 0
        return count

    @property
    def over(self) -> bool:
        """Whether the campaign is; Stuck when it is blocked."""
        row = self.store.campaign(self.campaign_id)
        if row.state is CampaignState.BLOCKED:
            raise Stuck(f"the campaign is blocked: {row.failure}\n{self.describe()}")
        return row.state in OVER

    def tmux(self, *arguments: str) -> str:
        """Ask the lane's own tmux server; empty when there is none."""
        if shutil.which("tmux") is None:
            return ""
        argv = ["tmux", "-L", TMUX_SOCKET, *arguments]
        done = subprocess.run(
            argv, env=self.environ, capture_output=True, text=True, check=False, timeout=30
        )
        return done.stdout.strip()

    # -- waiting ----------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str, deadline_s: float = STUCK_S) -> None:
        """Tend until ``condition()`` is truthy.

        Raises:
            Stuck: it was still false after ``deadline_s``.
        """
        end = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end:
                raise Stuck(f"{what}: not within {deadline_s:.0f} s\n{self.describe()}")
            self.tend()
            time.sleep(LOOK_S)

    def describe(self) -> str:
        """States and the ends of the logs."""
        lines = [
            f"{a.id} {a.state.value} step {a.step} {a.detail} {a.reason}" for a in self.attempts()
        ]
        programs = (self.daemon, *self.workers.values())
        lines += [f"--- {p.name} (alive {p.alive}) ---\n{p.tail()}" for p in programs]
        for attempt in self.attempts()[-3:]:
            folder = self.folder(attempt.id)
            logs = (folder.path / "logs").glob("*.log") if folder is not None else ()
            lines += [f"--- {p.name} ---\n{_end_of(p)}" for p in sorted(logs)]
        return "\n".join(lines)

    # -- the end ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End every process of the lane, whatever became of it."""
        for program in (*self.workers.values(), self.daemon):
            program.end()
        # A crowd that only speaks has started nothing, and looking for that takes minutes for thousands of attempts.
        for attempt in self.attempts() if self.workers or self.own_worker else ():
            sweep({NONCE: attempt.nonce}, 0.2)
        self.tmux("kill-server")
        self.bystanders.end()
        self.store.close()


@contextmanager
def rig(folder: Path, times: Times, *, own_worker: bool = False) -> Generator[Rig]:
    """Make the world in ``folder`` and end all of it with the block. Nothing runs before the first ``tend``.

    ``own_worker``: the daemon keeps a worker by itself, as it does for a person.
    """
    workspace = Workspace.create(folder / ".a3r")
    workspace.daemon.mkdir(exist_ok=True, mode=0o700)
    # A socket's path has at most 107 bytes.
    sockets = tempfile.mkdtemp(prefix="a3r-", dir="/tmp")
    environ = _environ(times, sockets)
    arguments = ["--workspace", str(workspace.root)]
    arguments += [] if own_worker else ["--no-worker", "--no-window"]
    command = python("a3r.cli.daemon", *arguments)
    made = Rig(
        workspace=workspace,
        environ=environ,
        daemon=Program("daemon", command, folder / "daemon.log", environ),
        bystanders=Bystanders(folder / "bystanders"),
        store=Store.open(workspace.database),
        homes={"daemon": workspace.root},
        own_worker=own_worker,
    )
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(sockets, ignore_errors=True)


def _environ(times: Times, sockets: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("A3R_", "SWARM_", "TMUX"))}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TMUX_TMPDIR": sockets,
        "A3R_HEARTBEAT_S": str(times.heartbeat_s),
        "A3R_LEASE_S": str(times.lease_s),
        "A3R_LOST_AFTER_S": str(times.lost_after_s),
    }


def _end_of(path: Path, size: int = 1200) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode("utf-8", "replace")
