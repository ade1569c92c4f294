"""Every sampled token is in the account of its step exactly once, also when something stops in between."""

import asyncio
import shutil

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.states import EngineState, EpisodeKind
from swarm.server.service.inference import ChatCall
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play, play_step, reply_to, take, toy_service

S = EngineState


@pytest.mark.every_engine
async def test_what_an_episode_sampled_before_a_stop_is_counted_as_dropped(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        cut = await take(service, "a")
        (reply,) = await ask(service, cut)
        await service.stop()
        await service.start()
        for reward in (0.0, 1.0):
            await play(service, "a", reward=lambda *_, reward=reward: reward)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.tokens["dropped:episode_aborted"] == reply.completion_tokens
        assert metrics.episodes_dropped == {"episode_aborted": 1}


@pytest.mark.parametrize("policy", ["C2", "C3"])
async def test_a_step_that_was_stopped_in_its_update_is_counted_once(tmp_path, make_config, policy):
    def dull_first(grant, replies):
        dull = policy == "C3" and grant.group_id == "s0.g0"
        return 0.0 if dull else float(grant.repeat_index)

    async def step(name, *, stop):
        fleet = ToyFleet()
        config = make_config(tasks=1, repeat=2, stop_at_step=1, policy=policy)
        async with toy_service(tmp_path / name, config, fleet=fleet) as service:
            gate = fleet.latest.train_gate = asyncio.Event()
            playing = asyncio.create_task(play_step(service, 1, reward=dull_first))
            if stop:
                await retry_until(
                    lambda: service.status().state is S.WEIGHT_SYNCING or playing.done()
                )
                await service.stop()
                await service.start()
            gate.set()
            await asyncio.wait_for(playing, 5)
            await retry_until(lambda: service.status().step == 1)
            return service.metrics(0)[0]

    whole, stopped = await step("whole", stop=False), await step("stopped", stop=True)
    assert (stopped.tokens, stopped.calls, stopped.episodes_dropped) == (
        whole.tokens,
        whole.calls,
        whole.episodes_dropped,
    )


async def test_a_call_that_outlived_its_episode_is_counted_as_an_aborted_call(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _request: "123456")
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grant = await take(service, "a")
        episode = service.episode_for_key(grant.api_key)
        stream = service.answer_stream(
            episode, ChatCall(messages=[{"role": "user", "content": "x"}])
        )
        await anext(stream)
        await service.abort(grant.episode_id, AbortRequest())
        with pytest.raises(EpisodeGone):
            await asyncio.wait_for(collect(stream), 5)
        for reward in (0.0, 1.0):
            await play(service, "a", reward=lambda *_, reward=reward: reward)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].tokens["dropped:aborted_call"] == 1


async def collect(stream):
    return [delta async for delta in stream]


async def test_tool_call_ids_of_two_conversations_in_one_episode_differ(tmp_path, make_config):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    fleet = ToyFleet(lambda _request: "<tool_call>1+2</tool_call>")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = service.episode_for_key((await take(service, "a")).api_key)
        ids = []
        for text in ("Plan.", "Check."):
            call = ChatCall(messages=[{"role": "user", "content": text}], tools=[tool])
            ids.append((await reply_to(service, episode, call)).message["tool_calls"][0]["id"])
        assert len(set(ids)) == 2


@pytest.mark.every_engine
async def test_ended_eval_episodes_do_not_pile_up_in_memory(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service._core.book.keep = 3
        grants = [await take(service, f"e{i}", kind=EpisodeKind.EVAL) for i in range(6)]
        for grant in grants:
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest())
        assert sum(service._core.book.get(g.episode_id) is not None for g in grants) == 3
        for grant in grants:
            assert service.trace(grant.episode_id, calls=True).call_count == 1
            assert (await service.finish(grant.episode_id, FinishRequest())).accepted
        await settle()


async def test_a_server_killed_in_its_update_still_counts_the_groups_that_could_not_train(
    tmp_path, make_config
):
    def dull_first(grant, replies):
        return 0.0 if grant.group_id == "s0.g0" else float(grant.repeat_index)

    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=2, stop_at_step=1, policy="C3")
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        gate = fleet.latest.train_gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 1, reward=dull_first))
        await retry_until(lambda: service.status().state is S.WEIGHT_SYNCING)
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
        gate.set()
        await playing
        await retry_until(lambda: service.status().step == 1)
        whole = service.metrics(0)[0]
    async with toy_service(tmp_path / "two", resume=True) as service:
        await retry_until(lambda: service.status().step == 1)
        resumed = service.metrics(0)[0]
    assert "masked:zero_advantage" in whole.tokens
    assert (resumed.tokens, resumed.calls, resumed.episodes_dropped) == (
        whole.tokens,
        whole.calls,
        whole.episodes_dropped,
    )
