"""The real engine under a configuration that changes: each batch is trained, and replayed, with its own rates."""

import asyncio
import shutil

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.states import EngineState
from swarm.server.engine.host import EngineHost
from swarm.testing import retry_until
from swarm.testing.server_fixture import play_step, toy_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CONFIG = TrainConfig.model_validate(
    {
        "engine": "torch",
        "batch": {"tasks": 1, "repeat": 3, "drain_deadline_s": 0.2},
        "sampling": {"max_response_tokens": 6},
        "optimizer": {"lr": 1e-3},
        "checkpoint": {"every_steps": 100},
        "stop_at_step": 4,
    }
)


def fleet(_name):
    return EngineHost()


def spread(grant, replies):
    """Rewards that always differ within a group."""
    return float(grant.repeat_index) + 0.01 * replies[0].completion_tokens


async def step(service):
    before = service.status().step
    await play_step(service, 1, reward=spread, turns=1)
    await retry_until(
        lambda: service.status().step > before and service.status().state is EngineState.ROLLING,
        timeout_s=60,
    )


async def test_batches_of_different_rates_are_replayed_to_the_same_weights(tmp_path):
    async with toy_service(tmp_path / "one", CONFIG, fleet=fleet) as service:
        await step(service)
        body = CONFIG.model_dump() | {
            "optimizer": {"lr": 5e-3},
            "algorithm": {"kl_coef": 0.2},
        }
        await service.configure(TrainConfig.model_validate(body), who="ann")
        await step(service)  # still at the first rate
        await step(service)
        rates = [(m.lr, m.updated) for m in service.metrics(0)]
        assert rates == [(1e-3, True), (1e-3, True), (5e-3, True)]
        assert service.metrics(2)[0].kl is not None
        fingerprint = service.status().fingerprint
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    async with toy_service(tmp_path / "two", resume=True, fleet=fleet) as service:
        # Nothing was saved: three batches are replayed, and every fingerprint on the way is checked.
        status = service.status()
        assert (status.step, status.fingerprint, status.failure) == (3, fingerprint, None)
        assert service.config.algorithm.kl_coef == 0.2
