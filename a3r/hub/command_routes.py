"""Questions to workers: a person asks for a piece of a log or for a trace, the worker answers on its next heartbeat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import NotFound
from a3r.core.types import CommandState
from a3r.core.wire import Command, CommandAnswer
from a3r.hub.auth import as_worker
from a3r.hub.state import Hub
from a3r.store.rows import CommandRow

Json = dict[str, Any]
CommandId = Annotated[int, PathParam(ge=1)]
MOST_BYTES = 4 * 2**20


class Ask(BaseModel):
    """``POST /api/v1/attempts/{id}/ask``."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["fetch_log", "fetch_trace"]
    name: str = Field(default="server", max_length=100)
    """Of a log: ``server``, ``client``, ``evaluator``, ``supervisor``."""
    offset: int = 0
    """Bytes from the log's start; negative: from its end."""
    limit: int = Field(default=65_536, ge=1, le=MOST_BYTES)
    episode_id: str = Field(default="", max_length=200)
    wait_s: float = Field(default=20.0, ge=0)


def add_answers(router: APIRouter, hub: Hub) -> None:
    """Add the worker's side: its answers."""

    @router.post("/commands/{command_id}")
    def answer(command_id: CommandId, request: CommandAnswer, http: Request) -> Json:
        """File what a command brought; a repeat is harmless."""
        as_worker(hub, http, request.worker_id)
        hub.store.answer_command(
            command_id,
            request.worker_id,
            ok=request.ok,
            result=request.result,
            at=hub.clock.time(),
        )
        return {}


def add_asking(router: APIRouter, hub: Hub) -> None:
    """Add the person's side: questions about attempts that are on other hosts."""

    @router.post("/attempts/{attempt_id}/ask")
    async def ask(attempt_id: str, request: Ask, http: Request) -> Json:
        """Ask the worker that has the attempt and wait for its answer, at most ``wait_s`` seconds."""
        attempt = hub.store.attempt(attempt_id)
        if attempt.worker_id is None:
            raise NotFound(
                f"No worker has the attempt {attempt_id!r} yet.", hint="Ask again when it runs."
            )
        args = request.model_dump(exclude={"kind", "wait_s"})
        asked = hub.store.add_command(
            attempt.worker_id, attempt_id, request.kind, args, hub.clock.time()
        )

        def look() -> CommandRow | None:
            row = hub.store.command(asked.id)
            return None if row.state is CommandState.OPEN else row

        row = await hub.poll(look, request.wait_s, http.is_disconnected)
        return (row or asked).model_dump(mode="json")


def to_command(row: CommandRow) -> Command:
    """As the worker gets it, on every heartbeat until it has answered."""
    kind: Any = row.kind
    return Command(kind=kind, attempt_id=row.attempt_id or "", id=row.id, args=row.args)
