"""Puts a command of an attempt where its blueprint wants it: in its environment, behind its walls. Writes down what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a3r.blueprints.model import SandboxSpec
from a3r.sandbox.enclosure import Room, enclose
from a3r.worker.environments import Environments, Need, Ready
from a3r.worker.folder import AttemptFolder
from a3r.worker.processes import child_env, read_json
from a3r.worker.supervisor import NONCE, PROCESS, write_json


@dataclass(frozen=True)
class Placed:
    """What to start."""

    argv: list[str]
    env: dict[str, str]
    secrets: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Place:
    """Where one process of an attempt runs."""

    role: str
    need: Need
    ready: Ready
    cwd: Path
    nonce: str
    sandbox: SandboxSpec | None = None
    """None: our own program, which gets no walls."""
    work: Path | None = None
    """Its own folder; needed with walls."""
    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    ports: Sequence[int] = ()
    gpus: Sequence[int] = ()


def put(
    folder: AttemptFolder, environments: Environments, place: Place, command: Sequence[str]
) -> Placed:
    """Return ``command`` (what follows ``python``) as it is to be started at ``place``; its record is on file then.

    Raises:
        BlueprintError: the environment does not answer or cannot run it.
        HostError: walls that the blueprint requires cannot be built here.
    """
    ready = place.ready
    record: dict[str, Any] = {"environment": environments.describe(ready, place.need)}
    argv, env = [*ready.argv, *command], dict(ready.variables)
    if ready.container is not None:
        # The engine's client gets the whole environment; the container what is named.
        names = [*ready.variables, *ready.secrets, NONCE, PROCESS, "HOME", "OMP_NUM_THREADS"]
        work = [place.work] if place.work is not None else []
        readable = [p for p in place.readable if p not in place.writable]
        env["HOME"] = str(place.work or place.cwd)
        argv, walls = ready.container.argv(
            argv, nonce=place.nonce, cwd=place.cwd, readable=readable,
            writable=[*place.writable, *work], names=names, sandbox=place.sandbox, gpus=place.gpus,
        )  # fmt: skip
        for path in work:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        record["sandbox"] = walls.model_dump()
    elif place.sandbox is not None and place.work is not None:
        room = Room(
            scratch=folder.path / "walls" / place.role,
            work=place.work,
            readable=[*place.readable, *map(Path, place.sandbox.readable)],
            writable=place.writable,
            hidden=[folder.path.parents[1]],
            ports=place.ports,
            proxy=ready.proxy,
            pythonpath=ready.variables.get("PYTHONPATH")
            or child_env(environments.environ).get("PYTHONPATH", ""),
        )
        made = enclose(argv, place.cwd, place.sandbox, room, python=ready.python)
        argv, env = made.argv, {**env, **made.env}
        record["sandbox"] = made.record.model_dump()
    if place.gpus and ready.container is None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.gpus))
    write_record(folder, place.role, record)
    return Placed(argv, env, ready.secrets)


def write_record(folder: AttemptFolder, role: str, record: dict[str, Any]) -> None:
    """Keep what a role's process got."""
    path = folder.path / "walls" / f"{role}.json"
    path.parent.mkdir(exist_ok=True, mode=0o700)
    write_json(path, record)


def records(folder: AttemptFolder) -> dict[str, dict[str, Any]]:
    """What each role's process got, by role."""
    found = {p.stem: read_json(p) for p in sorted((folder.path / "walls").glob("*.json"))}
    return {role: record for role, record in found.items() if record is not None}
