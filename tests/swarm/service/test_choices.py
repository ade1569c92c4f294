"""Several choices, sampling that is applied, calls that are excluded, retries, and who goes next."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from swarm.protocol.config import SamplingConfig, TrainSampling
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import RequestError, UnsupportedParameter
from swarm.protocol.states import EpisodeKind
from swarm.server.service.calls import ChatCall, Grammar, Sampling
from swarm.server.service.fairness import FairGate
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import reply_to, take, toy_service

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Compute 1+2."}


def call(**keys: Any) -> ChatCall:
    return ChatCall(messages=[USER], **keys)


async def opened(service, task="a", **keys):
    return service.episode_for_key((await take(service, task, **keys)).api_key)


async def test_each_choice_is_a_branch_of_its_own_that_trains(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        for reward in (0.0, 1.0):
            grant = await take(service, "a")
            answer = await service.answer(service.episode_for_key(grant.api_key), call(n=3))
            assert [reply.index for reply in answer.choices] == [0, 1, 2]
            assert len({tuple(reply.token_ids) for reply in answer.choices}) == 3
            assert answer.completion_tokens == sum(r.completion_tokens for r in answer.choices)
            calls = service.trace(grant.episode_id, calls=True).calls
            assert [c.choice for c in calls] == [0, 1, 2]
            assert {tuple(c.sampled_ids) for c in calls} == {
                tuple(r.token_ids) for r in answer.choices
            }
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.rows, metrics.calls) == (6, 6)
        assert set(metrics.tokens) == {"trained"}


@pytest.mark.every_engine
async def test_the_pieces_of_several_choices_add_up_to_each(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        texts = {0: "", 1: ""}
        finals = {}
        async for delta in service.answer_stream(episode, call(n=2)):
            texts[delta.index] += delta.text
            if delta.final is not None:
                finals[delta.index] = delta.final
        assert {n: reply.message["content"] for n, reply in finals.items()} == texts


@pytest.mark.every_engine
async def test_too_many_choices_for_the_episode_are_refused_before_anything_is_sampled(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(max_calls=2)) as service:
        episode = await opened(service)
        with pytest.raises(RequestError, match="0 of its 2 calls"):
            await service.answer(episode, call(n=3))
        assert not episode.calls
        assert not episode.pending


async def test_one_choice_that_fails_ends_the_others(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.latest.hold = asyncio.Event()
        stream = service.answer_stream(episode, call(n=3))
        async with aclosing(stream):
            first = asyncio.ensure_future(anext(stream))
            await retry_until(lambda: fleet.latest.generating == 3)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        fleet.latest.hold.set()
        await retry_until(lambda: not episode.pending)


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("rule", "temperature", "trained"),
    [("default_temperature", 1.0, True), ("mask", 0.0, False)],
)
async def test_a_greedy_call_in_training_is_made_usable_or_masked(
    tmp_path, make_config, rule, temperature, trained
):
    sampling = SamplingConfig(train=TrainSampling(greedy=rule))
    config = make_config(tasks=1, repeat=2, stop_at_step=1, sampling=sampling)
    async with toy_service(tmp_path, config) as service:
        for reward in (0.0, 1.0):
            grant = await take(service, "a")
            episode = service.episode_for_key(grant.api_key)
            reply = await reply_to(service, episode, call(temperature=0.0))
            assert reply.applied["temperature"] == temperature
            assert ("replaced" in reply.applied) is trained
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await retry_until(lambda: service.status().step == 1)
        key = "trained" if trained else "masked:greedy_sampling"
        assert set(service.metrics(0)[0].tokens) == {key}


@pytest.mark.every_engine
async def test_evaluation_keeps_what_the_caller_asked_for(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service, kind=EpisodeKind.EVAL)
        asked = call(temperature=0.0, sampling=Sampling(top_p=0.5))
        reply = await reply_to(service, episode, asked)
        assert reply.applied == {"temperature": 0.0, "max_tokens": 256, "top_p": 0.5}


@pytest.mark.every_engine
async def test_sampling_may_be_refused_by_the_servers_choice(tmp_path, make_config):
    refuse = TrainSampling(greedy="refuse", truncation="refuse")
    config = make_config(sampling=SamplingConfig(train=refuse))
    async with toy_service(tmp_path, config) as service:
        episode = await opened(service)
        with pytest.raises(UnsupportedParameter, match="temperature 0"):
            await service.answer(episode, call(temperature=0.0))
        with pytest.raises(UnsupportedParameter, match="top_k"):
            await service.answer(episode, call(sampling=Sampling(top_k=3)))
        assert (await reply_to(service, episode, call(temperature=0.5))).token_ids


@pytest.mark.every_engine
async def test_truncation_left_out_is_told_and_a_grammar_is_masked(tmp_path, make_config):
    ignore = SamplingConfig(train=TrainSampling(truncation="ignore"))
    async with toy_service(tmp_path, make_config(sampling=ignore)) as service:
        episode = await opened(service)
        reply = await reply_to(service, episode, call(sampling=Sampling(top_p=0.5)))
        assert reply.applied["replaced"] == ["top_p"]
        assert "top_p" not in reply.applied
        constrained = call(sampling=Sampling(grammar=Grammar("choice", ["12", "34"])))
        reply = await reply_to(service, episode, constrained)
        assert reply.applied["trained"] is False
        assert reply.message["content"] in ("12", "34")
        assert [c.replayable for c in episode.calls] == [True, False]


@pytest.mark.every_engine
async def test_an_excluded_call_is_recorded_with_its_tag_and_never_trains(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        for reward in (0.0, 1.0):
            grant = await take(service, "a")
            episode = service.episode_for_key(grant.api_key)
            await reply_to(service, episode, call())
            await reply_to(service, episode, call(exclude=True, tag="title", unknown=["zzz"]))
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await retry_until(lambda: service.status().step == 1)
        assert set(service.metrics(0)[0].tokens) == {"trained", "masked:excluded_call"}
        second = service.trace(grant.episode_id, calls=True).calls[1]
        assert (second.tag, second.excluded, second.unknown) == ("title", True, ["zzz"])


@pytest.mark.every_engine
async def test_volatile_lines_do_not_break_the_conversation_and_are_kept(tmp_path, make_config):
    sampling = SamplingConfig(volatile=(r"Today is .*",))
    async with toy_service(tmp_path, make_config(sampling=sampling)) as service:
        episode = await opened(service)
        said = [{"role": "system", "content": "Be brief.\nToday is Monday."}, USER]
        reply = await reply_to(service, episode, ChatCall(messages=said))
        said = [
            {"role": "system", "content": "Be brief.\nToday is Tuesday."},
            USER,
            reply.message,
            USER,
        ]
        await reply_to(service, episode, ChatCall(messages=said))
        first, second = episode.calls
        assert second.parent == first.index
        assert second.messages[0]["content"] == "Be brief."
        assert second.raw_request["messages"][0]["content"].endswith("Tuesday.")


@pytest.mark.every_engine
async def test_a_retry_is_answered_with_what_was_sampled_and_an_unmarked_repeat_is_not(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        first = await service.answer(episode, call(retry_key="x"))
        again = await service.answer(episode, call(retry_key="x", retry_count=1))
        assert again.choices == first.choices
        assert (first.replayed, again.replayed) == (False, True)
        assert again.response_id == first.response_id
        assert len(episode.calls) == 1
        pieces = [
            d async for d in service.answer_stream(episode, call(retry_key="x", retry_count=2))
        ]
        assert pieces[-1].final == first.choices[0]
        await service.answer(episode, call(retry_key="x"))
        assert len(episode.calls) == 2


async def test_a_retry_joins_the_attempt_that_is_still_being_answered(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.latest.hold = asyncio.Event()
        first = asyncio.ensure_future(service.answer(episode, call(retry_key="x")))
        await retry_until(lambda: fleet.latest.generating == 1)
        second = asyncio.ensure_future(service.answer(episode, call(retry_key="x", retry_count=1)))
        await settle()
        assert fleet.latest.generating == 1
        fleet.latest.hold.set()
        assert (await first).choices == (await second).choices
        assert len(episode.calls) == 1


async def test_a_retry_whose_first_attempt_was_given_up_is_sampled(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        episode = await opened(service)
        fleet.latest.hold = asyncio.Event()
        first = asyncio.ensure_future(service.answer(episode, call(retry_key="x")))
        await retry_until(lambda: fleet.latest.generating == 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        fleet.latest.hold.set()
        answer = await service.answer(episode, call(retry_key="x", retry_count=1))
        assert not answer.replayed
        assert answer.choices[0].token_ids


async def test_a_prompt_goes_on_from_what_was_sampled_before(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        cut = ChatCall(messages=[], prompt="12+", max_tokens=1)
        first = await reply_to(service, episode, cut)
        longer = f"12+{first.message['content']}34"
        second = await reply_to(service, episode, ChatCall(messages=[], prompt=longer))
        captured = first.prompt_ids + first.token_ids
        assert second.prompt_ids[: len(captured)] == captured
        assert episode.calls[1].parent == 0
        # The end of an answer is no text: a prompt that goes on after it has none in its middle.
        third = ChatCall(messages=[], prompt=f"{longer}{second.message['content']}5")
        ids = (await reply_to(service, episode, third)).prompt_ids
        ended = second.prompt_ids + second.token_ids
        assert second.finish_reason == "stop"
        assert ids[: len(ended) - 1] == ended[:-1]
        assert ended[-1] not in ids
        by_ids = await reply_to(service, episode, ChatCall(messages=[], prompt=[20, 21]))
        assert by_ids.prompt_ids == [20, 21]


@pytest.mark.every_engine
async def test_counting_samples_nothing_and_remembers_nothing(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        count = service.count_tokens(episode, call())
        assert count == service.count_tokens(episode, call())
        reply = await reply_to(service, episode, call())
        assert reply.prompt_tokens == count
        assert len(episode.calls) == 1


@pytest.mark.every_engine
async def test_a_forced_call_is_a_call(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        episode = await opened(service)
        forced = call(tools=[TOOL], tool_choice={"name": "add"})
        reply = await reply_to(service, episode, forced)
        assert reply.applied["grammar"] == "tool_call"


async def test_places_go_round_the_episodes():
    gate = FairGate(1)
    order: list[str] = []

    async def go(episode: str, name: str) -> None:
        async with gate.place(episode):
            order.append(name)
            await settle()

    async with gate.place("other"):
        tasks = [asyncio.ensure_future(go("greedy", f"g{n}")) for n in range(3)]
        await settle()
        tasks.append(asyncio.ensure_future(go("modest", "m")))
        await settle()
        assert gate.waiting == 4
        tasks[1].cancel()
        await settle()
        assert gate.waiting == 3
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["g0", "m", "g2"]
    assert gate.waiting == 0


async def test_a_place_is_not_lost_when_its_waiter_is_cancelled_as_it_gets_it():
    gate = FairGate(1)
    async with gate.place("a"):
        waiter = asyncio.ensure_future(gate.place("b").__aenter__())
        await settle()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    async with asyncio.timeout(1), gate.place("c"):
        pass
