"""Answers to questions that a person asks through the hub: a piece of a log on this host, the trace of an episode."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from a3r.core.errors import A3RError
from a3r.core.wire import Command, CommandAnswer
from a3r.worker.folder import AttemptFolder
from a3r.worker.members import Member
from a3r.worker.prepare import admin_token
from a3r.worker.processes import read_json
from a3r.worker.redaction import Redactor, redactor_of
from swarm.client import SwarmClient
from swarm.protocol.errors import ServerUnreachable, SwarmError

MOST_BYTES = 4 * 2**20
TRACE_DEADLINE_S = 5.0
GONE = "the attempt's server does not run (any more); what it knew is in its journal, in the attempt's folder"


class LogRange(BaseModel):
    """What ``fetch_log`` says; the name is that of a role, never a path."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(pattern=r"^[a-z][A-Za-z0-9._-]{0,99}$")
    offset: int = 0
    """Negative: from the end."""
    limit: int = Field(default=65_536, ge=1, le=MOST_BYTES)


class TraceOf(BaseModel):
    """What ``fetch_trace`` says."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    episode_id: str = Field(min_length=1, max_length=200)


def answer(
    command: Command, runs: Path, worker_id: str, environ: Mapping[str, str] | None = None
) -> CommandAnswer:
    """The answer to a question; never raises for what a question or a host may hold: the reason is in ``error`` then.

    ``environ``: the worker's own environment; secrets that are found there are taken out of what is told.
    """
    try:
        folder = AttemptFolder.of(runs, command.attempt_id)
        kinds = {"fetch_log": _log, "fetch_trace": _trace}
        redactor = redactor_of(folder, environ or {})
        result = kinds[command.kind](folder, command.args, redactor)
    except (A3RError, SwarmError, OSError, ValueError, KeyError) as error:
        return CommandAnswer(worker_id=worker_id, ok=False, result={"error": _words(error)})
    return CommandAnswer(worker_id=worker_id, ok=True, result=result)


def _words(error: Exception) -> str:
    if isinstance(error, ServerUnreachable):
        return GONE
    if isinstance(error, ValidationError):
        said = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return "; ".join(said)[:2000]
    return f"{type(error).__name__}: {error}"[:2000]


def _log(folder: AttemptFolder, args: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    asked = LogRange.model_validate(args)
    path = folder.log(asked.name)
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none yet"
        raise FileNotFoundError(f"the attempt has no log {asked.name!r}; its logs: {there}")
    size = path.stat().st_size
    begin = max(0, size + asked.offset) if asked.offset < 0 else min(asked.offset, size)
    data = redactor.read(path, begin, asked.limit, everything=False)
    return {"data_b64": base64.b64encode(data).decode(), "offset": begin, "size": size}


def _trace(folder: AttemptFolder, args: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Of the server that has the episode; a swarm's episodes have ids of their own."""
    asked = TraceOf.model_validate(args)
    error: Exception = FileNotFoundError(GONE)
    for path in sorted(folder.path.glob("ready*.json")):
        member = Member(folder, path.stem.removeprefix("ready").removeprefix("-"))
        ready = read_json(member.ready_file)
        if ready is None:
            continue
        url, token = str(ready["url"]), admin_token(member)
        with SwarmClient(url, token, timeout_s=TRACE_DEADLINE_S) as client:
            try:
                told = client.trace(asked.episode_id).model_dump(mode="json")
                return {"trace": redactor.value(told)}
            except SwarmError as refused:
                error = refused
    raise error
