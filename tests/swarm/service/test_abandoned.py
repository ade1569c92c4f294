"""A group whose player has gone for good does not hold the step for ever."""

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.states import GrantOutcome
from swarm.testing import ManualClock, retry_until
from swarm.testing.server_fixture import ask, take, toy_service


async def _left_alone(service):
    """One of two members of a task is finished; its client is gone, another one plays something else."""
    first = await take(service, "only-a")
    await ask(service, first)
    await service.finish(first.episode_id, FinishRequest(reward=1.0))
    service.register(ClientRegistration(client_id="b"))
    assert (await take(service, "b-task", client_id="b")).outcome is GrantOutcome.WAIT
    return first


async def _wait(service, clock, seconds):
    """Let time pass in small pieces; client ``b`` keeps its lease."""
    for _ in range(int(seconds / 10)):
        await clock.advance(10)
        service.heartbeat("b")


@pytest.mark.parametrize("policy", ["C2", "C3"])
async def test_another_task_goes_in_its_place(tmp_path, make_config, policy):
    clock = ManualClock()
    config = make_config(
        tasks=1, repeat=2, stop_at_step=1, abandon_after_s=100, max_groups_factor=1, policy=policy
    )
    async with toy_service(tmp_path, config, clock=clock) as service:
        first = await _left_alone(service)
        await _wait(service, clock, 90)
        assert (await take(service, "b-task", client_id="b")).outcome is GrantOutcome.WAIT
        await _wait(service, clock, 20)
        for reward in (0.0, 1.0):
            grant = await take(service, "b-task", client_id="b")
            assert grant.outcome is GrantOutcome.GRANTED
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.episodes_dropped) == (1, {"abandoned": 1})
        assert metrics.tokens["dropped:abandoned"] > 0
        assert "abandoned" in service.trace(first.episode_id, calls=False).reason


async def test_it_waits_while_nobody_else_is_there_and_while_it_is_played(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=1, repeat=2, stop_at_step=1, abandon_after_s=50)
    async with toy_service(tmp_path, config, clock=clock) as service:
        first = await take(service, "only-a")
        await service.finish(first.episode_id, FinishRequest(reward=1.0))
        for _ in range(20):
            await clock.advance(10)
        assert service.pool().episodes_finished == 1
        service.register(ClientRegistration(client_id="b"))
        second = await take(service, "only-a", client_id="b")
        await _wait(service, clock, 80)
        assert service.pool().episodes_finished == 1
        await service.finish(second.episode_id, FinishRequest(reward=0.0))
        await retry_until(lambda: service.status().step == 1)
