"""The debug episode: a client plays a few episodes on a live server before anyone is asked to review it.

The server is real (``swarm serve`` on loopback) and its engine is the toy one, whose random words need no GPU and no time: what
is tried is the client, not the model. The client runs behind walls, as it will on a worker, without any key of this process.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from a3r.blueprints.model import SandboxSpec
from a3r.blueprints.sealed import SealedTask
from a3r.blueprints.tasks import ScoredTask
from a3r.core.errors import A3RError, HostError
from a3r.leader.generate import ENTRY
from a3r.sandbox.enclosure import Room, enclose
from swarm.client import SwarmClient
from swarm.client.tasks import Task
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState

EVAL_ITEMS = 2
START_S = 60.0
PHASE_S = 90.0
"""For the training episodes, and again for the held-out ones."""
TAIL = 4000
"""Characters of a log that are kept."""
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "SYSTEMROOT")
ROLES = ("admin", "client", "eval", "signing")
CONTEXT_TOKENS = 65536
MEMORY_MB = 4096


@dataclass(frozen=True)
class TrialReport:
    """What came of it."""

    problems: list[str] = field(default_factory=list[str])
    """In words; empty = the client works."""
    log: str = ""
    """The end of the client's output."""
    walls: dict[str, Any] = field(default_factory=dict[str, Any])
    """What was and was not enforced (``a3r.sandbox``)."""

    @property
    def worked(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def told(self) -> dict[str, Any]:
        """As JSON, for a job's result."""
        return {"problems": self.problems, "walls": self.walls, "log": self.log[-TAIL:]}


@dataclass(frozen=True)
class Trial:
    """One try of one client."""

    client: Path
    """Its folder; not written to."""
    task: ScoredTask | SealedTask
    items: int
    """Held-out items of one evaluation, as the campaign will ask for them."""
    item_seed: int
    arguments: Mapping[str, Any]
    scratch: Path
    """A folder of its own; emptied first, removed at the end."""
    hidden: Sequence[Path] = ()
    """Folders that the client must not see: the workspace."""
    python: str = ""
    """Interpreter of the client; empty: this one."""
    seed: int = 0
    phase_s: float = PHASE_S

    def run(self) -> TrialReport:
        """Start the server, train for one step, play two held-out items. Never raises for what the client does.

        Raises:
            HostError: the server does not start: nothing is known of the client.
        """
        shutil.rmtree(self.scratch, ignore_errors=True)
        for part in ("server", "work", "walls"):
            (self.scratch / part).mkdir(parents=True, mode=0o700)
        tokens = {role: secrets.token_urlsafe(32) for role in ROLES}
        _private(self.scratch / "server" / "tokens.json", json.dumps(tokens))
        server = self._serve()
        try:
            url = self._url(server)
            with SwarmClient(url, tokens["admin"], "trial") as swarm:
                return self._try(swarm, url, tokens)
        finally:
            _end(server)
            shutil.rmtree(self.scratch, ignore_errors=True)

    # -- server -----------------------------------------------------------------------------------------------

    def _serve(self) -> subprocess.Popen[bytes]:
        config = TrainConfig.model_validate(
            {
                "engine": "toy",
                "model": {"max_model_len": CONTEXT_TOKENS},
                "batch": {"tasks": 1, "repeat": 2},
                "sampling": {"max_response_tokens": 16},
                "stop_at_step": 1,
            }
        )
        (self.scratch / "train.json").write_text(config.model_dump_json(), "utf-8")
        with (self.scratch / "server.log").open("wb") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "swarm.cli", "serve"),
                    *("--host", "127.0.0.1", "--port", "0", "--start"),
                    *("--state-dir", str(self.scratch / "server")),
                    *("--config", str(self.scratch / "train.json")),
                    *("--ready-file", str(self.scratch / "ready.json")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), "XDG_STATE_HOME": str(self.scratch.resolve())},
                start_new_session=True,
            )

    def _url(self, server: subprocess.Popen[bytes]) -> str:
        ready, ends = self.scratch / "ready.json", time.monotonic() + START_S
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > ends:
                said = _tail(self.scratch / "server.log")
                raise HostError(
                    f"The server of a client's debug episode does not start: {said[-500:]}",
                    hint="`a3r doctor` checks what a server needs.",
                )
            time.sleep(0.05)
        return str(json.loads(ready.read_text("utf-8"))["url"])

    # -- the client -------------------------------------------------------------------------------------------

    def _try(self, swarm: SwarmClient, url: str, tokens: Mapping[str, str]) -> TrialReport:
        walls: dict[str, Any] = {}
        problems = self._play("train", url, tokens, walls, {})
        if not problems:
            problems = _trained(swarm)
        errors = [f"the server noted: {e.kind}: {e.text}" for e in swarm.overview().errors[-3:]]
        if not problems:
            problems = self._held_out(swarm, url, tokens, walls)
        else:
            problems += errors
        log = "\n".join(
            f"--- {mode} ---\n{_tail(self.scratch / f'{mode}.log')}" for mode in ("train", "eval")
        )
        return TrialReport(problems, log, walls)

    def _held_out(
        self, swarm: SwarmClient, url: str, tokens: Mapping[str, str], walls: dict[str, Any]
    ) -> list[str]:
        items = self.task.items(self.items, self.item_seed)[:EVAL_ITEMS]
        prompts = [{"item_id": i.task_id, "payload": self.task.prompt(i)} for i in items]
        work = self.scratch / "work"
        (work / "items.json").write_text(json.dumps(prompts), "utf-8")
        out = work / "episodes.json"
        more = {"items_file": str(work / "items.json"), "out_file": str(out), "step": 1}
        problems = self._play("eval", url, tokens, walls, more)
        if problems:
            return problems
        try:
            said: Any = json.loads(out.read_text("utf-8"))
            told = cast("dict[str, Any]", said) if isinstance(said, dict) else {"episodes": said}
            rows = told["episodes"]
            listed: dict[str, Any] = {str(r["item_id"]): r for r in cast("list[Any]", rows)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            return [f"the evaluation left no list of episodes in out_file: {error}"]
        return [p for item in items for p in self._item(swarm, item, listed.get(item.task_id, {}))]

    def _item(self, swarm: SwarmClient, item: Task, row: Mapping[str, Any]) -> list[str]:
        name = item.task_id
        if not row.get("episode_id"):
            return [
                f"the held-out item {name!r} has no episode: {row.get('reason') or 'it is not in the list'}"
            ]
        try:
            trace = swarm.trace(str(row["episode_id"]))
        except SwarmError as error:
            return [f"the episode of {name!r} is not known to the server: {error}"]
        if trace.kind is not EpisodeKind.EVAL or trace.task_id != name:
            return [
                f"the episode of {name!r} is of kind {trace.kind.value} and task {trace.task_id!r}"
            ]
        if trace.state is not EpisodeState.FINISHED or not trace.calls:
            return [f"the episode of {name!r} is {trace.state.value} with {len(trace.calls)} calls"]
        try:
            score = self.task.score(item, trace)
        except A3RError as error:
            return [f"the evaluator can not score {name!r}: {error.message}"]
        return [] if math.isfinite(score) else [f"the score of {name!r} is {score}"]

    def _told(
        self, mode: str, url: str, tokens: Mapping[str, str], more: Mapping[str, Any]
    ) -> Path:
        """Write the client's spec and its token; the spec's file."""
        work = self.scratch / "work"
        token = work / f"{mode}.token"
        _private(token, tokens["client" if mode == "train" else "eval"])
        told = {"url": url, "token_file": str(token), "mode": mode, "seed": self.seed}
        told |= {"arguments": dict(self.arguments), **more}
        path = work / f"{mode}.json"
        path.write_text(json.dumps(told), "utf-8")
        return path

    def _play(
        self,
        mode: Literal["train", "eval"],
        url: str,
        tokens: Mapping[str, str],
        walls: dict[str, Any],
        more: Mapping[str, Any],
    ) -> list[str]:
        """Run the client once; problems in words."""
        work, told = self.scratch / "work", self._told(mode, url, tokens, more)
        python = self.python or sys.executable
        room = Room(
            scratch=self.scratch / "walls",
            work=work,
            readable=[self.client],
            hidden=self.hidden,
            ports=[int(url.rpartition(":")[2])],
        )
        argv = [python, "-B", str(self.client / ENTRY), str(told)]
        shut = enclose(argv, self.client, SandboxSpec(memory_mb=MEMORY_MB), room)
        walls.update(shut.record.model_dump(mode="json"))
        log = self.scratch / f"{mode}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                shut.argv,
                cwd=self.client,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**_environment(), **shut.env},
                start_new_session=True,
            )
        try:
            code = process.wait(self.phase_s)
        except subprocess.TimeoutExpired:
            return [f"in {mode} mode it does not end within {self.phase_s:g} s"]
        finally:
            _end(process)
        said = _tail(log).strip().splitlines()
        last = said[-1][:300] if said else "it says nothing"
        return [f"in {mode} mode it ends with exit code {code}: {last}"] if code else []


def _trained(swarm: SwarmClient) -> list[str]:
    """What the server says of the training step, where it is not what was to be."""
    status = swarm.status()
    if status.state is not EngineState.TRAINED:
        return [f"it ended before training did (the server is at step {status.step} of 1)"]
    steps = swarm.metrics(0)
    if not steps or steps[0].episodes < 1:
        return ["the training step consumed no episode"]
    reward = steps[0].reward_mean
    if reward is None or not math.isfinite(reward):
        return ["the training episodes have no finite reward"]
    return [] if steps[0].calls else ["the training episodes asked the model nothing"]


def _environment() -> dict[str, str]:
    """Of the server and the client: no keys, no tokens, one thread."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its session; safe when it has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
    # Its children may have stayed; the id of a group that still has members is given to nobody else.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with closing(path.open("rb")) as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return file.read().decode("utf-8", "replace")


def _private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
