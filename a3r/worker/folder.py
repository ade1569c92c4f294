"""The folder of one attempt, ``runs/<attempt_id>/``: the only memory that a worker has of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints.model import Blueprint, ClientSpec
from a3r.core.errors import HostError
from a3r.core.types import FailureClass
from a3r.core.wire import AttemptSpec, EvalRound, EventReport, FinishReport
from a3r.worker.failures import Role
from a3r.worker.processes import Process
from a3r.worker.supervisor import write_json

ROLES: tuple[Role, ...] = ("server", "client", "evaluator", "environment")
SAFE_ID = re.compile(r"[\w.-]{1,100}")


class Address(BaseModel):
    """Where a further server of the attempt is, and how far."""

    url: str = ""
    port: int | None = None
    step: int | None = None


class Memo(BaseModel):
    """``memo.json``: what the runner decided so far. Everything else is read from records and from the server."""

    model_config = ConfigDict(extra="ignore")

    phase: str = "preparing"
    """preparing, running, evaluating, stopping, finished (``AttemptRunner``)."""
    started_at: float = 0.0
    """Unix seconds; the clock of ``max_time_s``."""
    progress_at: float = 0.0
    """When the server's step last moved, a process was restarted or a round ended; the clock of the deadlines."""
    step: int | None = None
    port: int | None = None
    """A restarted server takes the same port, so that nobody has to be told a new one."""
    url: str = ""
    others: dict[str, Address] = Field(default_factory=dict[str, Address])
    """The same of the further servers, by name."""
    extra_env: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    """Role -> variables that a remedy added."""
    roused_at: int = -1
    """The step at which the client was last started again because nothing moved."""
    stopping_at: int | None = None
    """The step after which the run ends by a stop rule of the blueprint."""
    stop_rule: str = ""
    """That rule, in words."""
    free_starts: dict[str, int] = Field(default_factory=dict[str, int])
    """Role -> restarts that do not count against its budget."""
    handled: list[str] = Field(default_factory=list[str])
    """Ended processes whose end has been dealt with."""
    said: list[str] = Field(default_factory=list[str])
    """Milestones that have been recorded as events."""
    engine_restarts: dict[str, int] = Field(default_factory=dict[str, int])
    """Start of the server -> restarts of its engine: the server counts from 0 in each of its own starts."""
    not_before: dict[str, float] = Field(default_factory=dict[str, float])
    """Role -> Unix seconds before which it is not started again."""
    blocked: str = ""
    """Why a person is needed; empty = nobody is."""
    blocked_at: float = 0.0
    """Unix seconds since when; meaningful while ``blocked``."""
    waited_s: float = 0.0
    """Time spent blocked in all; it does not count towards ``max_time_s``."""
    probes: int = 0
    """Of the present block; each waits longer than the one before."""
    blocked_class: FailureClass | None = None
    blocked_role: str = ""
    """The process that will tell whether it is over."""
    forgotten: bool = False
    """The hub does not want it any more (stale fencing token): nothing is sent, the folder stays as evidence."""
    outcome: str | None = None
    failure: FailureClass | None = None
    reason: str = ""

    def where(self, server: str) -> Address:
        """Where a server is; ``""`` is the first one."""
        if not server:
            return Address(url=self.url, port=self.port, step=self.step)
        return self.others.get(server, Address())

    def moved(self, server: str, url: str, port: int | None) -> None:
        """Note where a server is now; no port = its next start takes any."""
        if not server:
            self.url, self.port = url, port
        else:
            known = self.where(server)
            self.others[server] = known.model_copy(update={"url": url, "port": port})

    def stepped(self, server: str, step: int) -> bool:
        """Note how far a server is; whether that is news."""
        if self.where(server).step == step:
            return False
        if not server:
            self.step = step
        else:
            self.others[server] = self.where(server).model_copy(update={"step": step})
        return True


@dataclass(frozen=True)
class AttemptFolder:
    """Paths and records of one attempt."""

    path: Path

    @classmethod
    def of(cls, runs: Path, attempt_id: str) -> AttemptFolder:
        """The folder of ``attempt_id``; ``HostError`` when the id cannot name one."""
        if not SAFE_ID.fullmatch(attempt_id) or set(attempt_id) == {"."}:
            raise HostError(f"{attempt_id!r} cannot name a folder.", hint="Use letters and digits.")
        return cls(runs / attempt_id)

    @property
    def client(self) -> Path:
        """The unpacked client."""
        return self.path / "client"

    @property
    def evaluator(self) -> Path:
        """The unpacked sealed evaluator, where the blueprint has one; no client may read it."""
        return self.path / "evaluator"

    @property
    def server(self) -> Path:
        """The swarm server's state directory."""
        return self.path / "server"

    @property
    def evals(self) -> Path:
        """``eval-<round>.json``."""
        return self.path / "evals"

    @property
    def steps_file(self) -> Path:
        """StepMetrics, one JSON line each, in order."""
        return self.path / "steps.jsonl"

    @property
    def events_file(self) -> Path:
        """EventReports, one JSON line each; ``seq`` is the line's number."""
        return self.path / "events.jsonl"

    @property
    def spec_file(self) -> Path:
        """What the hub sent. Written first and once: without it there is no attempt."""
        return self.path / "attempt.json"

    @property
    def finish_file(self) -> Path:
        """The FinishReport, once everything has ended."""
        return self.path / "finish.json"

    @property
    def session(self) -> str:
        """Name of the terminal session: ``a3r-`` and the end of the attempt's id."""
        return session_name(self.path.name)

    def log(self, name: str) -> Path:
        """Raw output of a role, all its starts."""
        return self.path / "logs" / f"{name}.log"

    def eval_file(self, name: str) -> Path:
        """The result of a round."""
        return self.evals / f"eval-{name}.json"

    # -- the attempt ------------------------------------------------------------------------------------------

    def save_spec(self, spec: AttemptSpec) -> None:
        """Keep what the hub sent; from here on the attempt survives the worker."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.spec_file, spec.model_dump(mode="json"))

    def spec(self) -> AttemptSpec:
        """What the hub sent."""
        return AttemptSpec.model_validate_json(self.spec_file.read_bytes())

    def memo(self) -> Memo:
        """The runner's memory; a fresh one at first."""
        try:
            return Memo.model_validate_json((self.path / "memo.json").read_bytes())
        except FileNotFoundError:
            return Memo()

    def save_memo(self, memo: Memo) -> None:
        """Write the runner's memory."""
        write_json(self.path / "memo.json", memo.model_dump(mode="json"))

    # -- processes --------------------------------------------------------------------------------------------

    def generations(self, role: str) -> list[Process]:
        """Every start of a role (``server``, ``client-<name>``, ``evaluator-<round>``), oldest first."""
        found = [
            p for p in (self.path / "proc").glob(f"{role}.*") if p.name[len(role) + 1 :].isdigit()
        ]
        return sorted((Process(p) for p in found), key=lambda p: p.generation)

    def latest(self, role: str) -> Process | None:
        """The newest start of a role."""
        found = self.generations(role)
        return found[-1] if found else None

    def next_process(self, role: str) -> Path:
        """Folder of the next start of a role."""
        return self.path / "proc" / f"{role}.{len(self.generations(role)) + 1}"

    def processes(self) -> list[Process]:
        """Every start of every role."""
        return [Process(p) for p in sorted((self.path / "proc").glob("*.[0-9]*"))]

    # -- evidence ---------------------------------------------------------------------------------------------

    def steps(self) -> list[dict[str, Any]]:
        """The steps recorded so far."""
        return list(read_lines(self.steps_file))

    def events(self) -> list[EventReport]:
        """The events recorded so far."""
        return [EventReport.model_validate(line) for line in read_lines(self.events_file)]

    def eval_round(self, name: str) -> EvalRound | None:
        """A round's result; None while there is none."""
        try:
            return EvalRound.model_validate_json(self.eval_file(name).read_bytes())
        except FileNotFoundError:
            return None

    def finish(self) -> FinishReport | None:
        """How it ended; None while it runs."""
        try:
            return FinishReport.model_validate_json(self.finish_file.read_bytes())
        except FileNotFoundError:
            return None


def session_name(attempt_id: str) -> str:
    """``a3r-`` and the last 8 letters or digits of the id."""
    return "a3r-" + re.sub(r"[^A-Za-z0-9_-]", "_", attempt_id)[-8:]


def role_of(process: Process) -> Role:
    """The role of a start, without its name, round or number."""
    name = process.name.rpartition(".")[0]
    kind = name.partition("-")[0]
    return kind if kind in ROLES else "evaluator"


def client_of(blueprint: Blueprint) -> ClientSpec:
    """The client that the attempt runs."""
    return blueprint.clients[0]


def append_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """Append JSON lines in one write; a half line left by a crash is cut off first."""
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1_000_000))
        end = file.read()
        if end and not end.endswith(b"\n"):
            file.truncate(size - len(end) + end.rfind(b"\n") + 1)
        file.write(data)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON lines file; nothing when there is none."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        yield json.loads(line)
