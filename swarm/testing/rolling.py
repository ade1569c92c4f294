"""Plays whatever a toy service's open step asks for, also while an update runs (asynchronous mode)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.states import EngineState, GrantOutcome
from swarm.server.service.service import SwarmService
from swarm.testing.clock import settle
from swarm.testing.server_fixture import ask, take
from swarm.testing.toy_engine import ToyFleet
from swarm.testing.waiting import retry_until

PATIENCE_S = 60.0


class Roller:
    """Plays what the open step asks for; remembers what was accepted."""

    def __init__(self, service: SwarmService, turns: int = 2) -> None:
        self.service, self.turns = service, turns
        self.accepted: list[str] = []

    def next_task(self) -> str | None:
        """Return the task to ask for now: a missing member first, then a new one; None when nothing is wanted."""
        pool = self.service.pool()
        if pool.wanted:
            return pool.wanted[0].task_id
        if pool.groups_to_open:
            return f"s{pool.step}t{len(pool.task_ids)}"
        return None

    async def one(self) -> bool:
        """Play one episode; False when none is wanted now."""
        task, step = self.next_task(), self.service.pool().step
        if task is None:
            return False
        grant = await take(self.service, task, step=step)
        if grant.outcome is not GrantOutcome.GRANTED:
            return False
        try:
            replies = await ask(self.service, grant, self.turns)
        except EpisodeGone:
            return False
        reward = float((sum(sum(r.token_ids) for r in replies) + grant.repeat_index) % 5)
        reply = await self.service.finish(grant.episode_id, FinishRequest(reward=reward))
        if reply.accepted:
            self.accepted.append(grant.episode_id)
        return True

    async def until(self, condition: Callable[[], object], workers: int = 1) -> None:
        """Play with that many workers until the condition holds, at most ``PATIENCE_S``."""

        async def work() -> None:
            while not condition():
                if not await self.one():
                    await asyncio.sleep(0.001)

        await asyncio.wait_for(asyncio.gather(*(work() for _ in range(workers))), PATIENCE_S)

    async def to_the_end(self, workers: int = 1) -> None:
        """Play until the server is TRAINED."""
        await self.until(lambda: self.service.status().state is EngineState.TRAINED, workers)


@asynccontextmanager
async def in_update(
    service: SwarmService, fleet: ToyFleet, roller: Roller, step: int = 1
) -> AsyncIterator[None]:
    """Inside the block the update of ``step`` runs and cannot end."""
    gate = fleet.latest.train_gate = asyncio.Event()
    await roller.until(lambda: service.status().updating)
    await settle()
    assert service.status().step == step - 1
    yield
    gate.set()
    fleet.latest.train_gate = None
    await retry_until(lambda: service.status().step >= step)
