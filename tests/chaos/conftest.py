"""A state folder as a server leaves it, and what its client would claim about it."""

import asyncio

import pytest

from swarm.protocol.config import BatchConfig, CheckpointConfig, TrainConfig
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.states import EngineState
from swarm.testing import retry_until, settle
from swarm.testing.chaos.ledger import Claim
from swarm.testing.server_fixture import ask, reward_by_tokens, take, toy_service

RESTING = (EngineState.ROLLING, EngineState.TRAINED)


async def play_two_steps(folder):
    """Two steps of two groups of two, played to their end; returns the claims."""
    claims = {}
    config = TrainConfig(
        engine="toy",
        stop_at_step=2,
        batch=BatchConfig(tasks=2, repeat=2),
        checkpoint=CheckpointConfig(every_steps=100, keep=100),
    )
    async with toy_service(folder, config) as service:
        await service.save_checkpoint()  # of step 0: the journal then keeps every batch
        while service.status().state is not EngineState.TRAINED:
            pool = service.pool()
            task = pool.wanted[0].task_id if pool.wanted else f"t{pool.step}.{len(pool.task_ids)}"
            grant = await take(service, task)
            if not grant.episode_id:
                await settle()
                await retry_until(lambda: service.status().state in RESTING)
                continue
            reward = reward_by_tokens(grant, await ask(service, grant))
            reply = await service.finish(grant.episode_id, FinishRequest(reward=reward))
            claims[grant.episode_id] = Claim(grant.episode_id, reward, True, reply.accepted)
    return claims


@pytest.fixture
def played(tmp_path):
    """(state folder that no server uses, claims of its only client)."""
    folder = tmp_path / "state"
    return folder, asyncio.run(play_two_steps(folder))
