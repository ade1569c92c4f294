"""Tokens that were sampled for callers who left: they are in the account all the same."""

import asyncio

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.states import EngineState
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import play, reply_to, take, toy_service

S = EngineState
CALL = ChatCall(messages=[{"role": "user", "content": "Compute."}])


async def test_a_cancelled_call_keeps_its_tokens_in_trace_and_account(tmp_path, make_config):
    fleet = ToyFleet(lambda _request: "123456")
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.before_abort = 4
        grant = await take(service, "a")
        episode = service.episode_for_key(grant.api_key)
        fleet.latest.hold = asyncio.Event()
        call = asyncio.create_task(service.answer(episode, CALL))
        await settle()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        fleet.latest.hold = None
        (record,) = service.trace(grant.episode_id, calls=True).calls
        assert (record.finish_reason, len(record.sampled_ids)) == ("abort", 4)
        await reply_to(service, episode, CALL)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await play(service, "a", reward=lambda *_: 0.0)
        await retry_until(lambda: service.status().step == 1)
        tokens = service.metrics(0)[0].tokens
        assert tokens["dropped:aborted_call"] == 4
        assert sum(tokens.values()) == fleet.latest.sampled


async def test_a_stream_that_fails_because_its_episode_ended_meanwhile_keeps_its_tokens(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _request: "123456")
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grant = await take(service, "a")
        stream = service.answer_stream(service.episode_for_key(grant.api_key), CALL)
        await anext(stream)
        gate = asyncio.Event()
        fleet.prepare = lambda engine: setattr(engine, "boot_gate", gate)
        fleet.latest.kill()
        reading = asyncio.create_task(anext(stream))
        await retry_until(lambda: service.status().state is S.BOOTING)
        await service.abort(grant.episode_id, AbortRequest())
        gate.set()
        with pytest.raises(EpisodeGone):
            await asyncio.wait_for(reading, 5)
        for reward in (0.0, 1.0):
            await play(service, "a", reward=lambda *_, reward=reward: reward)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].tokens["dropped:aborted_call"] == 1
