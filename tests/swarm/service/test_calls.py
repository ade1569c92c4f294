import asyncio
import time

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import ContextLengthExceeded, EngineFailed, EpisodeGone, QueueFull
from swarm.protocol.states import EngineState, EpisodeKind
from swarm.server.service.inference import HELD_LIMIT, ChatCall
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import BASE_URL, ask, reply_to, take, toy_service

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def call(text="Compute 1+2.", **kwargs):
    return ChatCall(messages=[{"role": "user", "content": text}], **kwargs)


async def opened(service, task="a"):
    return service.episode_for_key((await take(service, task)).api_key)


async def collect(stream):
    return [delta async for delta in stream]


async def test_a_reply_says_what_was_sampled_and_what_was_applied(tmp_path, make_config):
    fleet = ToyFleet(lambda _request: "12")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        reply = await reply_to(
            service, episode, call(max_tokens=5000, logprobs=True, top_logprobs=1)
        )
        assert reply.message == {"role": "assistant", "content": "12"}
        assert (reply.finish_reason, reply.completion_tokens) == ("stop", 3)
        assert reply.applied == {"temperature": 1.0, "max_tokens": 256}
        assert b"".join(reply.token_texts) == b"12<|im_end|>"
        assert len(reply.logprobs) == len(reply.top) == 3
        assert reply.prompt_tokens == len(reply.prompt_ids)
        short = await reply_to(service, episode, call(max_tokens=1, temperature=0.5))
        assert (short.message["content"], short.finish_reason) == ("1", "length")
        assert short.applied == {"temperature": 0.5, "max_tokens": 1}
        record = service.trace(episode.episode_id, calls=True).calls[1]
        assert (record.sampled_ids, record.max_tokens) == (short.token_ids, 1)


async def test_stop_strings_are_not_part_of_the_text_but_all_ids_are_kept(tmp_path, make_config):
    fleet = ToyFleet(lambda _request: "12;34")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        reply = await reply_to(service, episode, call(stop=[";"]))
        assert reply.message["content"] == "12"
        deltas = await collect(service.answer_stream(episode, call(stop=[";3", ";x"])))
        assert "".join(delta.text for delta in deltas) == "12"
        assert deltas[-1].final.token_ids == reply.token_ids


async def test_tool_calls_come_only_when_tools_are_declared_and_wanted(tmp_path, make_config):
    fleet = ToyFleet(lambda _request: "<tool_call>1+2</tool_call>")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        reply = await reply_to(service, episode, call(tools=[TOOL]))
        (tool_call,) = reply.message["tool_calls"]
        assert (reply.finish_reason, reply.message["content"]) == ("tool_calls", None)
        assert tool_call["function"] == {"name": "add", "arguments": '{"expression":"1+2"}'}
        plain = await reply_to(service, episode, call(tools=[TOOL], tool_choice="none"))
        assert plain.message["content"] == "<tool_call>1+2</tool_call>"
        deltas = await collect(service.answer_stream(episode, call(tools=[TOOL])))
        assert [d.tool_calls[0]["function"]["name"] for d in deltas if d.tool_calls] == ["add"]
        assert "".join(d.text for d in deltas) == ""


async def test_a_stream_adds_up_to_the_reply_and_is_committed_before_its_end(tmp_path, make_config):
    fleet = ToyFleet(lambda _request: "3 apples")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        texts = []
        async for delta in service.answer_stream(episode, call()):
            texts.append(delta.text)
            if delta.final is not None:
                assert service.trace(episode.episode_id, calls=False).call_count == 1
                assert "".join(texts) == delta.final.message["content"] == "3 apples"
        assert len([t for t in texts if t]) > 2


async def test_a_stream_that_is_left_early_is_recorded_as_aborted_and_never_trained(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _request: "123456")
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        episode = await opened(service)
        stream = service.answer_stream(episode, call())
        await anext(stream)
        await stream.aclose()
        assert fleet.latest.generating == 0
        (record,) = service.trace(episode.episode_id, calls=True).calls
        assert (record.finish_reason, len(record.sampled_ids)) == ("abort", 1)
        await reply_to(service, episode, call())
        other = await opened(service)
        await reply_to(service, other, call())
        await service.finish(episode.episode_id, FinishRequest(reward=1.0))
        await service.finish(other.episode_id, FinishRequest(reward=0.0))
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].tokens == {"dropped:aborted_call": 1, "trained": 14}


async def test_a_stream_goes_on_after_the_engine_died_without_repeating_itself(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _request: "123456")
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        stream = service.answer_stream(episode, call())
        first = await anext(stream)
        fleet.latest.kill()
        rest = await asyncio.wait_for(collect(stream), 5)
        assert first.text + "".join(delta.text for delta in rest) == "123456"
        assert service.trace(episode.episode_id, calls=False).call_count == 1
        assert service.status().engine_restarts == 1


async def test_a_cancelled_call_leaves_nothing_in_the_engine(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.latest.hold = asyncio.Event()
        running = asyncio.create_task(reply_to(service, episode, call()))
        await settle()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (fleet.latest.generating, episode.pending) == (0, set())


async def test_an_abort_ends_the_pending_call_with_episode_gone(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.latest.hold = asyncio.Event()
        running = asyncio.create_task(reply_to(service, episode, call()))
        await settle()
        await service.abort(episode.episode_id, AbortRequest(reason="enough"))
        with pytest.raises(EpisodeGone, match="enough"):
            await asyncio.wait_for(running, 5)


async def test_a_prompt_longer_than_the_context_is_refused(tmp_path, make_config):
    config = make_config(model={"max_model_len": 24})
    async with toy_service(tmp_path, config) as service:
        episode = await opened(service)
        reply = await reply_to(service, episode, call("1"))
        assert reply.applied["max_tokens"] == 24 - reply.prompt_tokens
        with pytest.raises(ContextLengthExceeded, match="takes 24"):
            await reply_to(service, episode, call("1" * 30))


async def test_megabytes_of_text_are_refused_before_they_are_encoded(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        with pytest.raises(ContextLengthExceeded, match="at least"):
            await reply_to(service, episode, call("12+3 " * 400_000))
        assert (await reply_to(service, episode, call("1"))).token_ids


@pytest.mark.every_engine
async def test_concurrent_calls_with_the_same_prompt_differ_and_do_not_depend_on_timing(
    tmp_path, make_config
):
    tokens = []
    for name in ("one", "two"):
        async with toy_service(tmp_path / name, make_config()) as service:
            episode = await opened(service)
            replies = await asyncio.gather(*(reply_to(service, episode, call()) for _ in range(8)))
            tokens.append([reply.token_ids for reply in replies])
    assert tokens[0] == tokens[1]
    # A trained model is sure of some answers: not each of the eight need be another.
    assert len({tuple(ids) for ids in tokens[0]}) > 1


async def test_too_many_held_calls_are_told_to_come_back(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=2, stop_at_step=1, max_calls=10_000)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grant = await take(service, "x", kind=EpisodeKind.EVAL)
        episode = service.episode_for_key(grant.api_key)
        fleet.latest.train_gate = asyncio.Event()
        for reward in (0.0, 1.0):
            member = await take(service, "a")
            await ask(service, member)
            await service.finish(member.episode_id, FinishRequest(reward=reward))
        await retry_until(lambda: service.status().state is EngineState.WEIGHT_SYNCING)
        one = call(max_tokens=1)
        held = [asyncio.create_task(reply_to(service, episode, one)) for _ in range(HELD_LIMIT)]
        await settle()
        with pytest.raises(QueueFull):
            await reply_to(service, episode, one)
        for task in held[1:]:
            task.cancel()
        fleet.latest.train_gate.set()
        assert (await asyncio.wait_for(held[0], 5)).policy_version == 1
        await asyncio.gather(*held, return_exceptions=True)


async def test_the_hot_path_costs_little(tmp_path, make_config):
    """Generous bounds: the machine of a test is shared. The budget is 150 us a grant or finish without the journal."""
    config = make_config(tasks=400, repeat=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        begun = time.process_time()
        grants = [await take(service, f"t{i}") for i in range(300)]
        granting = time.process_time() - begun
        begun = time.process_time()
        for grant in grants:
            await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        finishing = time.process_time() - begun
        assert granting / 300 < 0.002
        assert finishing / 300 < 0.002
        assert BASE_URL in grants[0].base_url


async def test_calls_fail_only_after_the_engine_died_under_each_attempt(tmp_path, make_config):
    fleet = ToyFleet()

    def suicidal(_request):
        fleet.latest.kill("bad luck")
        raise EngineFailed("The engine process is gone: bad luck.")

    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.script = fleet.latest.script = suicidal
        with pytest.raises(EngineFailed, match="bad luck"):
            await asyncio.wait_for(ask_once(service, episode), 5)
        fleet.script = None
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        assert len(fleet.engines) == 5


async def ask_once(service, episode):
    return await reply_to(service, episode, call())


@pytest.mark.every_engine
async def test_two_episodes_never_see_each_others_calls(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        one, two = await take(service, "a"), await take(service, "b")
        replies, others = await asyncio.gather(ask(service, one, 3), ask(service, two, 2))
        traces = [service.trace(g.episode_id, calls=True) for g in (one, two)]
        assert [len(t.calls) for t in traces] == [3, 2]
        assert [c.sampled_ids for c in traces[0].calls] == [r.token_ids for r in replies]
        assert [c.sampled_ids for c in traces[1].calls] == [r.token_ids for r in others]
