"""A real swarm server with a scripted model behind it, and episodes that programs are run in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.packages import ROOT
from conformance.scenario import Scenario, ScriptedModel
from swarm.client import SwarmClient
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import TokenFate
from swarm.testing import ToyFleet
from swarm.testing.live_server import LiveServer, live_server

AGENTS = Path(__file__).parent / "agents"
CONFIG: dict[str, Any] = {
    "engine": "toy",
    "model": {"tool_parser": "hermes", "max_model_len": 400_000},
    "sampling": {"max_response_tokens": 4096},
    "batch": {"tasks": 1, "repeat": 2},
    "episode": {"max_calls": 100},
    "stop_at_step": 10,
}
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONWARNINGS": "ignore",
    "NO_COLOR": "1",
    "DO_NOT_TRACK": "1",
}
"""Nobody needs to hear of these runs."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")


@dataclass(slots=True)
class Ran:
    """A program that has ended, and what was captured meanwhile."""

    returncode: int
    output: str
    trace: EpisodeTrace


def keep_evidence(name: str, ran: Ran) -> None:
    """Write what a failed program printed, and what was captured of it, into ``.conformance/failed/``."""
    evidence(f"{name}.log", ran.output)
    evidence(f"{name}.json", ran.trace.model_dump_json(indent=1))


def evidence(name: str, text: str) -> None:
    """Write one file there."""
    folder = ROOT / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


class Rig:
    """The server and its one client."""

    def __init__(self, server: LiveServer, model: ScriptedModel, folder: Path) -> None:
        self.server, self.model, self.folder = server, model, folder
        self.client = SwarmClient(server.url, server.tokens.admin)

    def run(
        self,
        command: list[str],
        scenario: Scenario,
        *,
        timeout_s: float = 90.0,
        prepare: Callable[[str], dict[str, str]] = lambda _base_url: {},
        cwd: Path | None = None,
        reward: float | None = None,
        task: str = "conformance",
    ) -> Ran:
        """Run a program as an episode; it finds the model through its environment.

        Args:
            command: the program.
            scenario: what the model says meanwhile.
            timeout_s: the program is killed after this.
            prepare: the episode's base URL -> more variables; may write the program's settings.
            cwd: where it runs.
            reward: None = an evaluation episode; else one that trains.
            task: episodes of one task form a group.
        """
        self.model.scenario = scenario
        kind = "eval" if reward is None else "train"
        with self.client.episode(task, kind=kind, grant_timeout_s=60) as episode:
            variables = program_environ(self.folder) | episode.environ() | prepare(episode.base_url)
            returncode, output = run_program(command, variables, timeout_s, cwd or self.folder)
            trace = self.client.trace(episode.id)
            episode.finish(reward or 0.0)
        return Ran(returncode, output, trace)

    def untrained(self, episodes: list[str]) -> list[str]:
        """Return which calls of these episodes did not train, and why; empty when all did."""
        calls = [(e, call) for e in episodes for call in self.client.trace(e).calls]
        if not calls:
            return ["nothing was captured"]
        return [
            f"call {call.index} of {episode}: {call.fate} {call.fate_reason}"
            for episode, call in calls
            if call.fate is not TokenFate.TRAINED
        ]


def program_environ(home: Path) -> dict[str, str]:
    """Return an environment without the person's own keys and settings; programs keep their files below ``home``."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | QUIET | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}


def run_program(
    command: list[str], environ: dict[str, str], timeout_s: float, cwd: Path
) -> tuple[int, str]:
    """Return the program's code and all that it printed; 124 when it ran too long."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        cwd=cwd,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return 124, output.decode(errors="replace")
    return process.returncode, output.decode(errors="replace")


@contextmanager
def open_rig(folder: Path) -> Generator[Rig]:
    """Serve until the block ends; everything that programs write lands below ``folder``."""
    model = ScriptedModel(folder / "model")
    with live_server(folder / "state", ToyFleet(model)) as server:
        home = folder / "home"
        home.mkdir()
        rig = Rig(server, model, home)
        with rig.client:
            path = {"model": CONFIG["model"] | {"path": str(model.folder)}}
            rig.client.configure(CONFIG | path)
            rig.client.start()
            yield rig
