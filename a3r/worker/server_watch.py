"""A swarm server of the attempt over HTTP: its status, its steps, its own record of what it was told to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from a3r.worker.folder import append_lines, read_lines
from a3r.worker.members import Member
from a3r.worker.prepare import admin_token
from a3r.worker.processes import read_json
from swarm.client import SwarmClient
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ServerUnreachable, SwarmError
from swarm.protocol.messages import Status
from swarm.protocol.records import StepMetrics

logger = logging.getLogger(__name__)

SILENT_S, SILENT_LOOKS = 60.0, 10
"""A server is called dead after this long AND this many looks without an answer: one lost probe is none, nor is a sleeping host."""
DEADLINE_S = 3.0
"""One look at the server; one that is busy for longer is looked at again."""

T = TypeVar("T")


class ServerWatch:
    """Reads one server. No answer is None, never a verdict: only the end of the process and the deadlines are."""

    def __init__(self, member: Member) -> None:
        """Nothing is opened before the first look."""
        self._member = member
        self._client: SwarmClient | None = None
        self._steps: int | None = None
        self._silent_since: float | None = None
        self._silent_looks = 0

    def is_dead(self, now: float, answered: bool) -> bool:
        """Count a look at ``now`` (Unix seconds); True when both budgets are used up, and the counting begins again."""
        if answered:
            self._silent_since, self._silent_looks = None, 0
            return False
        self._silent_since = now if self._silent_since is None else self._silent_since
        self._silent_looks += 1
        dead = now - self._silent_since >= SILENT_S and self._silent_looks >= SILENT_LOOKS
        if dead:
            self._silent_since, self._silent_looks = None, 0
        return dead

    def end_after(self, step: int) -> bool:
        """Tell the server that its run ends with ``step``; False when it did not take it now. Safe to repeat."""
        config = self.config()
        if config is None:
            return False
        if config.stop_at_step <= step:
            return True
        told = config.model_copy(update={"stop_at_step": step})
        return self._ask(lambda client: client.configure(told)) is not None

    def address(self) -> tuple[str, int] | None:
        """URL and port where the server listens; None before it does."""
        ready = read_json(self._member.ready_file)
        return (str(ready["url"]), int(ready["port"])) if ready else None

    def status(self) -> Status | None:
        """The server's status."""
        return self._ask(lambda client: client.status())

    def config(self) -> TrainConfig | None:
        """The server's own training config."""
        return self._ask(lambda client: client.config())

    @property
    def steps(self) -> int:
        """Steps on file."""
        if self._steps is None:
            self._steps = len(list(read_lines(self._member.steps_file)))
        return self._steps

    def record_steps(self, step: int) -> list[dict[str, Any]]:
        """Put the records of steps up to ``step`` on file; returns the new ones, in order."""
        known = self.steps
        if step <= known:
            return []
        found: list[StepMetrics] = self._ask(lambda client: client.metrics(known)) or []
        new = [m.model_dump(mode="json") for m in found]
        append_lines(self._member.steps_file, new)
        self._steps = known + len(new)
        return new

    def _ask(self, question: Callable[[SwarmClient], T]) -> T | None:
        address = self.address()
        if address is None:
            return None
        if self._client is None or self._client.settings.url != address[0]:
            self.close()
            token = admin_token(self._member)
            self._client = SwarmClient(address[0], token, "worker", timeout_s=DEADLINE_S)
        try:
            return question(self._client)
        except ServerUnreachable:
            return None
        except SwarmError as error:
            name = f"{self._member.folder.path.name} {self._member.role}"
            logger.warning("%s: the server refused: %s", name, error)
            return None

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._client is not None:
            self._client.close()
            self._client = None
