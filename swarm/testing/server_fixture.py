"""A service on a toy engine (or a lent one, see ``swarm.testing.engines``), and workers that play its episodes without HTTP."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import FinishReply, FinishRequest, Grant, GrantRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.states import EpisodeKind, GrantOutcome
from swarm.server.keys import Tokens
from swarm.server.ports import Engine
from swarm.server.service.calls import ChatCall, ChatReply
from swarm.server.service.clock import Clock
from swarm.server.service.episodes import Episode
from swarm.server.service.service import SwarmService
from swarm.testing import engines

Reward = Callable[[Grant, list[ChatReply]], float]
BASE_URL = "http://test"


@asynccontextmanager
async def toy_service(
    state_dir: Path,
    config: TrainConfig | None = None,
    *,
    fleet: Callable[[str], Engine] | None = None,
    clock: Clock | None = None,
    resume: bool = False,
) -> AsyncIterator[SwarmService]:
    """Open a service (signing secrets of its own folder), configure and start it, and close it at the end.

    Without ``config`` it stays OFFLINE; with ``resume`` it starts what the folder's journal holds.
    """
    service = await SwarmService.open(
        state_dir=state_dir,
        engine_factory=fleet or engines.fleet(),
        tokens=Tokens.load(state_dir),
        clock=clock,
        resume=resume,
    )
    try:
        if config is not None:
            await service.configure(config)
        if config is not None or resume:
            await service.start()
        yield service
    finally:
        await service.close()


async def reply_to(service: SwarmService, episode: Episode, call: ChatCall) -> ChatReply:
    """Answer a call that asks for one choice; return that."""
    return (await service.answer(episode, call)).choices[0]


async def ask(service: SwarmService, grant: Grant, turns: int = 1) -> list[ChatReply]:
    """Hold a conversation of ``turns`` calls in a granted episode; return the replies."""
    episode = service.episode_for_key(grant.api_key)
    messages = [{"role": "user", "content": f"Compute {grant.group_id}."}]
    replies: list[ChatReply] = []
    for _ in range(turns):
        reply = await reply_to(service, episode, ChatCall(messages=list(messages)))
        replies.append(reply)
        messages += [reply.message, {"role": "user", "content": "Again."}]
    return replies


def reward_by_tokens(grant: Grant, replies: list[ChatReply]) -> float:
    """A reward that repeats with replies and seats. No two of a group are equal: a real model says the same thing often."""
    return float(sum(sum(reply.token_ids) for reply in replies) % 5 + 5 * grant.repeat_index)


async def take(
    service: SwarmService,
    task_id: str,
    *,
    kind: EpisodeKind = EpisodeKind.TRAIN,
    wait_s: float = 0.0,
    step: int | None = None,
    client_id: str = "client",
    **more: Any,
) -> Grant:
    """Ask for an episode of a task; ``more`` are further fields of ``GrantRequest``."""
    request = GrantRequest(
        client_id=client_id, kind=kind, task_id=task_id, wait_s=wait_s, step=step, **more
    )
    return await service.grant(request, base_url=BASE_URL)


async def play(
    service: SwarmService,
    task_id: str,
    *,
    reward: Reward = reward_by_tokens,
    turns: int = 1,
    step: int | None = None,
    wait_s: float = 0.0,
) -> FinishReply | None:
    """Take, play and finish one episode; None when it was not granted or ended before."""
    grant = await take(service, task_id, step=step, wait_s=wait_s)
    if grant.outcome is not GrantOutcome.GRANTED:
        return None
    try:
        replies = await ask(service, grant, turns)
    except EpisodeGone:
        return None
    return await service.finish(
        grant.episode_id, FinishRequest(reward=reward(grant, replies), metrics={"x": 1.0})
    )


async def play_step(
    service: SwarmService, workers: int, *, reward: Reward = reward_by_tokens, turns: int = 2
) -> int:
    """Play with that many workers at once until the open step is over; returns the episodes that were accepted.

    Members that the pool misses are served first, then the step's own new tasks ``s<step>t<n>``.
    """
    step = service.status().step
    fresh = itertools.count()
    accepted = 0

    async def work() -> None:
        nonlocal accepted
        while service.status().step == step:
            reply = await play(
                service, _next_task(service, fresh), step=step, reward=reward, turns=turns
            )
            if reply is None:
                await asyncio.sleep(0.001)
            else:
                accepted += reply.accepted

    await asyncio.gather(*(work() for _ in range(workers)))
    return accepted


def _next_task(service: SwarmService, fresh: itertools.count[int]) -> str:
    pool = service.pool()
    if pool.wanted:
        return pool.wanted[0].task_id
    return f"s{pool.step}t{len(pool.task_ids)}" if pool.groups_to_open else f"x{next(fresh)}"
