"""Asynchronous mode under clients that do anything: nothing is lost, doubled or too old."""

import asyncio
import random
from contextlib import aclosing

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.states import EngineState, GrantOutcome
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet
from swarm.testing.rolling import Roller
from swarm.testing.server_fixture import reply_to, take, toy_service

S = EngineState
CALL = ChatCall(messages=[{"role": "user", "content": "Compute."}])


async def an_unsteady_client(service, fleet, rng, over):
    """Plays at random: some calls stream, some are left, some episodes are aborted, sometimes the engine dies."""
    roller = Roller(service)
    while not over():
        task, step = roller.next_task(), service.pool().step
        grant = await take(service, task, step=step) if task is not None else None
        if grant is None or grant.outcome is not GrantOutcome.GRANTED:
            await asyncio.sleep(0.001)
            continue
        try:
            episode = service.episode_for_key(grant.api_key)
            for _ in range(rng.randint(1, 3)):
                await a_call_of_some_kind(service, fleet, episode, rng)
                await asyncio.sleep(rng.choice((0, 0, 0.003)))
            if rng.random() < 0.15:
                await service.abort(grant.episode_id, AbortRequest(reason="enough"))
                continue
            reward = float(rng.randint(0, 3))
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        except EpisodeGone:
            continue


async def a_call_of_some_kind(service, fleet, episode, rng):
    kind = rng.random()
    if kind < 0.4:
        await reply_to(service, episode, CALL)
    elif kind < 0.8:
        async with aclosing(service.answer_stream(episode, CALL)) as stream:
            async for _ in stream:
                if rng.random() < 0.05:
                    return
    elif kind < 0.95:
        call = asyncio.create_task(service.answer(episode, CALL))
        await asyncio.sleep(rng.choice((0, 0.001)))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    elif kind < 0.96:
        fleet.latest.kill()


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_clients_and_engine_do_nothing_is_lost_doubled_or_too_old(
    tmp_path, asynchronous, seed
):
    rng = random.Random(seed)
    bound = rng.choice((0, 1, 3))
    config = asynchronous(
        policy=rng.choice(("C1", "C2", "C3")),
        group_rule=rng.choice(("wait", "resample", "partial")),
        oversample=rng.choice((1.0, 1.5, 2.5)),
        max_staleness=bound,
        stop_at_step=6,
        every_steps=rng.choice((1, 2, 10)),
    )
    fleet = ToyFleet()
    fleet.prepare = lambda engine: setattr(engine, "before_abort", 2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        clients = (
            an_unsteady_client(
                service, fleet, rng, lambda: service.status().state in (S.TRAINED, S.OFFLINE)
            )
            for _ in range(rng.choice((1, 4, 12)))
        )
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        assert service.status().state is S.TRAINED, service.status().failure
        metrics = service.metrics(0)
        assert [m.step for m in metrics] == [1, 2, 3, 4, 5, 6]
        assert max(m.staleness_max or 0 for m in metrics) <= bound
        batches = {b.step: b for engine in fleet.engines for b in engine.batches}
        consumed = [{r.episode_id for r in b.rows} for b in batches.values()]
        assert sum(map(len, consumed)) == len(set().union(*consumed))
        for step, batch in batches.items():
            ages = [step_start(metrics, step) - v for r in batch.rows for v in r.versions]
            assert all(0 <= age <= bound for age in ages)
        counted = sum(n for m in metrics for n in m.tokens.values())
        assert counted == sum(engine.sampled for engine in fleet.engines)


def step_start(metrics, step):
    """The policy version that the update of ``step`` began from."""
    return metrics[step - 2].policy_version if step > 1 else 0
