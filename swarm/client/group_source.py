"""A swarm group as ``run_episodes`` and ``run_eval`` see it: one server whose pool is what all servers need together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from swarm.client.errors import ExternalModelDown
from swarm.client.group_base import GroupBase
from swarm.client.group_demand import demand_of
from swarm.client.group_life import BY_AGREEMENT
from swarm.client.group_roles import GroupGrant
from swarm.protocol.clients import AgreeReply, ClientLease, TaskCursor
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.messages import Status
from swarm.protocol.pool import PoolSnapshot, TaskQueue, TaskQueueInfo
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome, Role

if TYPE_CHECKING:
    from swarm.client.async_client import AsyncSwarmClient
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.group_episode import AsyncGroupEpisode
    from swarm.client.settings import ClientSettings

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Outage:
    """Paces a run while an external model is down: one episode now and then looks whether it is back."""

    def __init__(self, limit_s: float) -> None:
        """Give up after ``limit_s`` seconds without an answer."""
        self._limit_s = limit_s
        self._since = self._next = 0.0
        self._pause_s = FIRST_PAUSE_S

    def holds(self, down: Mapping[str, str], now: float) -> str:
        """Why no episode may begin now; empty = one may.

        Raises:
            ExternalModelDown: it has been down for too long.
        """
        if not down:
            self._since, self._pause_s = 0.0, FIRST_PAUSE_S
            return ""
        role, why = next(iter(down.items()))
        if not self._since:
            self._since, self._next = now, now + self._pause_s
        if now - self._since > self._limit_s:
            raise ExternalModelDown(
                f"The external model of role {role!r} has been down for {now - self._since:.0f} s: {why}",
                hint="Run again when it is back; the servers keep their steps.",
                role=role,
            )
        if now < self._next:
            return f"external model {role!r} is down: {why}"
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
        self._next = now + self._pause_s
        return ""


class AsyncGroupSource:
    """What ``run_episodes`` asks a client for, asked of a group. The lead answers where one answer is needed."""

    def __init__(self, group: AsyncSwarmGroup) -> None:
        """Ask nothing yet."""
        self.group = group
        self._trainers = [s for s in group.cast.servers if group.cast.trains(s)]
        self._lead = group.servers[self._trainers[0]]
        self._outage = Outage(group.outage_limit_s)
        self._seen: dict[str, int] = {}
        """Server -> step of the last look, of those that still train."""
        self._missing: list[tuple[str, str]] = []
        """Task set and id of each seat that all servers have or would open, of the last look."""
        self._to_hear: list[str] = []
        """Servers that would be told of an agreement now."""

    @property
    def settings(self) -> ClientSettings:
        """Of the lead."""
        return self._lead.settings

    async def ensure_registered(self, kind: EpisodeKind, code_hash: str | None = None) -> str:
        """Register on every server; the lead's id of this client."""
        clients = [self.group.servers[s] for s in self._servers(kind)]
        ids = await asyncio.gather(*(c.ensure_registered(kind, code_hash) for c in clients))
        return ids[clients.index(self._lead)]

    def _servers(self, kind: EpisodeKind) -> list[str]:
        return self._trainers if kind is EpisodeKind.TRAIN else list(self.group.cast.servers)

    async def pool(self) -> PoolSnapshot:
        """What all servers that train need together; from now on grants are asked for that."""
        found = await asyncio.gather(*(self.group.servers[s].pool() for s in self._trainers))
        pools = dict(zip(self._trainers, found, strict=True))
        self._seen = {s: p.step for s, p in pools.items() if p.state is not EngineState.TRAINED}
        demand = demand_of(pools, stop_at_first=self.group.when_trained == "stop")
        self.group.guests, self.group.steps = demand.guests, demand.steps
        self._missing = [
            (w.task_set, w.task_id) for w in demand.pool.wanted for _ in range(w.missing)
        ]
        return demand.pool.model_copy(update=self._agreement(pools))

    def _agreement(self, pools: Mapping[str, PoolSnapshot]) -> dict[str, Any]:
        """What the merged pool says of C4 and C5: takeable is what some server could take that has not heard from us."""
        asking = {s: pools[s] for s in self._seen if pools[s].policy in BY_AGREEMENT}
        ids = {s: self.group.servers[s].client_id for s in asking}
        unheard = {s: p for s, p in asking.items() if ids[s] not in p.agreed}
        takeable = [s for s, p in unheard.items() if p.takeable]
        self._to_hear = takeable or list(unheard)
        if not unheard:
            return {}
        policy = unheard[self._to_hear[0]].policy
        return {"policy": policy, "agreed": [], "takeable": bool(takeable)}

    async def status(self) -> Status:
        """Of the first server that is OFFLINE, else of the lead."""
        statuses = await self.group.status()
        offline = [s for s in statuses.values() if s.state is EngineState.OFFLINE]
        return offline[0] if offline else statuses[self._trainers[0]]

    async def poll_step(self, after_step: int, wait_s: float, *, opened: bool = False) -> Status:
        """Until a server's step passes the one last seen, or ``wait_s``."""
        del after_step
        seen = self._seen or {self._trainers[0]: 0}
        polls = [
            asyncio.ensure_future(self.group.servers[s].poll_step(step, wait_s, opened=True))
            for s, step in seen.items()
        ]
        try:
            done, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    async def grant(self, request: GrantRequest) -> Grant:
        """Ask all servers once; WAIT while an external model is down, but for one try now and then.

        Raises:
            ExternalModelDown: it has been down for too long.
        """
        held = self._outage.holds(self._down(), time.monotonic())
        if held:
            step = request.step or 0
            return GroupGrant(outcome=GrantOutcome.WAIT, step=step, reason=held)
        grant = await self.group.grant(request)
        seat = next((s for s in self._missing if s[0] == request.task_set), None)
        if request.task_id or seat is None or grant.outcome is not GrantOutcome.WAIT:
            return grant
        # The first server's queue gave what the others have no seat for, or does not think of what they miss.
        self._missing.remove(seat)
        return await self.group.grant(request.model_copy(update={"task_id": seat[1]}))

    def _down(self) -> dict[str, str]:
        """External models that did not answer and that episodes need."""
        models = self.group.cast.externals
        return {r: why for r, why in self.group.book.down().items() if not models[r].optional}

    def episode_of(self, grant: Grant, request: GrantRequest) -> AsyncGroupEpisode:
        """The episode object of a grant that was GRANTED."""
        return self.group.episode_of(grant, request)

    async def register(self, role: Role | str, code_hash: str | None = None) -> ClientLease:
        """Register on every server that trains; the lead's lease."""
        return await self._of_lead(
            {s: self.group.servers[s].register(role, code_hash) for s in self._trainers}
        )

    async def agree(self, for_step: int | None = None) -> AgreeReply:
        """Agree on each server that asks for it, has not heard so yet and could take its step; one of their answers."""
        del for_step  # of the lead; each server has its own
        replies = await self.group.agree({s: self._seen[s] for s in self._to_hear})
        return next(iter(replies.values()))

    async def set_cursor(self, cursor: TaskCursor, client_id: str | None = None) -> ClientLease:
        """Tell every server that trains; the lead's answer."""
        return await self._of_lead(
            {s: self.group.servers[s].set_cursor(cursor) for s in self._trainers}
        )

    async def set_task_queue(self, task_set: str, queue: TaskQueue) -> TaskQueueInfo:
        """Give every server that trains the list; the first in order of ids hands out."""
        return await self._of_lead(
            {s: self.group.servers[s].set_task_queue(task_set, queue) for s in self._trainers}
        )

    async def task_queues(self) -> list[TaskQueueInfo]:
        """Of the server that hands out."""
        order = await self.group.drive(self.group.ordered())
        may = [s for s in order if s in self._trainers]
        first = next((s for s in may if s not in self.group.guests), may[0])
        return await self.group.servers[first].task_queues()

    async def trace(self, episode_id: str) -> EpisodeTrace:
        """The first server's record of an eval episode."""
        return await self.group.servers[self.group.cast.servers[0]].trace(episode_id)

    async def _of_lead(self, asked: Mapping[str, Awaitable[Any]]) -> Any:
        answers = await asyncio.gather(*asked.values())
        return dict(zip(asked, answers, strict=True))[self._trainers[0]]


def asked_of(client: AsyncSwarmClient | AsyncSwarmGroup) -> Asked:
    """Whom a run asks: the client itself, or a group as if it were one."""
    return AsyncGroupSource(client) if isinstance(client, GroupBase) else client


if TYPE_CHECKING:
    Asked = AsyncSwarmClient | AsyncGroupSource
