"""Several agents in one episode: keys, calls, rewards and training are each agent's own."""

import asyncio
import shutil

import pytest

from swarm.protocol.episodes import AbortRequest, AgentKeyRequest, FinishRequest
from swarm.protocol.errors import EpisodeGone, NotFoundError, RequestError, RewardError, StateError
from swarm.protocol.states import EngineState, EpisodeKind, FateReason, TokenFate
from swarm.server.service.agents import MAX_AGENTS
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import BASE_URL, ask, reply_to, take, toy_service


def key_of(service, grant, agent, *, train=True):
    request = AgentKeyRequest(agent=agent, train=train)
    return service.agent_key(grant.episode_id, request, base_url=BASE_URL)


async def say(service, key, text="Hi.", history=()):
    episode, agent = service.caller_of(key)
    call = ChatCall(messages=[*history, {"role": "user", "content": text}], agent=agent)
    return await reply_to(service, episode, call)


async def test_a_key_for_an_agent_is_the_same_each_time_and_the_first_word_on_training_stands(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        first = key_of(service, grant, "seer", train=False)
        assert key_of(service, grant, "seer", train=False) == first
        assert first.api_key != grant.api_key
        assert first.base_url == grant.base_url == "http://test/v1"
        assert service.caller_of(first.api_key).agent == "seer"
        assert service.caller_of(grant.api_key).agent == ""
        with pytest.raises(StateError, match="train=False"):
            key_of(service, grant, "seer")
        assert service.trace(grant.episode_id, calls=False).agents == {"seer": False}


async def test_an_ended_or_unknown_episode_takes_no_agents_and_an_open_one_only_so_many(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        for i in range(MAX_AGENTS):
            key_of(service, grant, f"a{i}")
        with pytest.raises(RequestError, match=f"{MAX_AGENTS} agents"):
            key_of(service, grant, "one-more")
        assert key_of(service, grant, "a0").agent == "a0"
        await service.abort(grant.episode_id, AbortRequest(reason="enough"))
        with pytest.raises(EpisodeGone, match="enough"):
            key_of(service, grant, "a0")
        with pytest.raises(NotFoundError):
            service.agent_key("ep-none", AgentKeyRequest(agent="a"), base_url=BASE_URL)


async def test_calls_belong_to_their_agent_and_continue_only_its_own(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        seer, wolf = (key_of(service, grant, name).api_key for name in ("seer", "wolf"))
        opening = [{"role": "user", "content": "Hi."}]
        first = await say(service, seer)
        await say(service, wolf, "Ho.")
        history = [*opening, first.message]
        await say(service, seer, "Go on.", history)
        await say(service, wolf, "Go on.", history)  # to the wolf the seer's words are text
        calls = service.trace(grant.episode_id, calls=True).calls
        assert [(c.agent, c.parent) for c in calls] == [
            ("seer", None),
            ("wolf", None),
            ("seer", 0),
            ("wolf", None),
        ]
        assert service._core.book.get(grant.episode_id).tree.divergences == 0


async def test_agents_draw_their_own_noise_whatever_the_order_of_their_calls(tmp_path, make_config):
    async def replies(name, order):
        async with toy_service(tmp_path / name, make_config()) as service:
            grant = await take(service, "a")
            keys = {agent: key_of(service, grant, agent).api_key for agent in ("seer", "wolf")}
            found = {agent: (await say(service, keys[agent])).token_ids for agent in order}
            found["own"] = (await say(service, grant.api_key)).token_ids
            return found

    one = await replies("one", ["seer", "wolf"])
    assert one == await replies("two", ["wolf", "seer"])
    assert len({tuple(ids) for ids in one.values()}) == 3


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({}, "without a reward for 'seer'"),
        ({"rewards": {"wolf": 1.0}}, "without a reward for 'seer'"),
        ({"rewards": {"seer": float("nan"), "wolf": 1.0}}, "rewards.seer"),
        ({"rewards": {"seer": 1e300, "wolf": 1.0}}, "beyond"),
        ({"reward": 1.0, "rewards": {"sear": 1.0}}, "'sear', which has no key"),
    ],
)
async def test_rewards_that_miss_an_agent_or_name_a_strange_one_are_refused_and_nothing_is_recorded(
    tmp_path, make_config, request_, problem
):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        for agent in ("seer", "wolf"):
            await say(service, key_of(service, grant, agent).api_key)
        with pytest.raises(RewardError, match=problem) as refused:
            await service.finish(grant.episode_id, FinishRequest(**request_))
        assert refused.value.status == 422
        assert service.status().open_episodes == 1
        fine = FinishRequest(reward=0.5, rewards={"seer": 1.0})
        assert (await service.finish(grant.episode_id, fine)).accepted
        assert service.trace(grant.episode_id, calls=False).rewards == {"seer": 1.0}


async def test_an_agent_that_does_not_train_or_made_no_call_needs_no_reward(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        await say(service, key_of(service, grant, "seer").api_key)
        await say(service, key_of(service, grant, "judge", train=False).api_key)
        key_of(service, grant, "mute")
        assert (
            await service.finish(grant.episode_id, FinishRequest(rewards={"seer": 1.0}))
        ).accepted
        eval_ = await take(service, "held-out", kind=EpisodeKind.EVAL)
        await say(service, key_of(service, eval_, "seer").api_key)
        assert (await service.finish(eval_.episode_id, FinishRequest())).accepted


async def game(service, i, *, mute=False):
    """Play one episode of a seer and a wolf whose rewards are opposite, before a judge that does not train."""
    grant = await take(service, "game")
    seats = ("seer",) if mute else ("seer", "wolf")
    for agent in seats:
        await say(service, key_of(service, grant, agent).api_key)
    await say(service, key_of(service, grant, "judge", train=False).api_key)
    rewards = {"seer": float(i), "wolf": float(-i)}
    if mute:
        del rewards["wolf"]
    return grant, await service.finish(grant.episode_id, FinishRequest(rewards=rewards))


async def test_a_step_trains_each_agent_by_its_own_rewards_and_says_so(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=3, stop_at_step=1, policy="C3")
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grants = [(await game(service, i))[0] for i in range(3)]
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.agents == {"seer": 1.0, "wolf": -1.0}
        assert (metrics.reward_mean, metrics.episodes, metrics.groups_tried) == (None, 3, 1)
        assert metrics.clients == {"client": 3}
        assert metrics.task_sets == {"default": 1}
        per_agent = metrics.agent_tokens
        assert set(per_agent["judge"]) == {"masked:agent_not_trained"}
        assert set(per_agent["seer"]) == set(per_agent["wolf"]) == {"trained"}
        total = {key: sum(c.get(key, 0) for c in per_agent.values()) for key in metrics.tokens}
        assert total == metrics.tokens
        (batch,) = fleet.latest.batches
        assert len(batch.rows) == 6
        assert sum(row.advantage for row in batch.rows) == pytest.approx(0.0)
        trace = service.trace(grants[0].episode_id, calls=True)
        seer, wolf, judge = trace.calls
        assert seer.advantages[0] == pytest.approx(-wolf.advantages[0])
        assert len(seer.advantages) == len(seer.sampled_ids)
        assert (judge.fate, judge.advantages) == (TokenFate.MASKED, [])
        assert judge.fate_reason is FateReason.AGENT_NOT_TRAINED


async def test_c3_replaces_a_group_in_which_no_agents_rewards_differ(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1, policy="C3")
    async with toy_service(tmp_path, config) as service:
        for _ in range(2):
            assert (await game(service, 0))[1].accepted
        assert service.status().step == 0
        for i in range(2):
            assert (await game(service, i))[1].accepted
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.groups_tried, metrics.updated) == (1, 2, True)
        assert metrics.agent_tokens["judge"].keys() == {"masked:agent_not_trained"}
        assert "masked:zero_advantage" in metrics.agent_tokens["seer"]


async def test_what_a_dropped_episode_sampled_is_counted_per_agent(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        lost = await take(service, "game")
        await say(service, key_of(service, lost, "seer").api_key)
        await service.abort(lost.episode_id, AbortRequest())
        for i in range(2):
            await game(service, i)
        await retry_until(lambda: service.status().step == 1)
        counts = service.metrics(0)[0].agent_tokens
        assert set(counts["seer"]) == {"dropped:episode_aborted", "trained"}
        assert set(counts["wolf"]) == {"trained"}


async def test_a_step_of_episodes_without_agents_says_nothing_of_agents(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        for i in range(2):
            grant = await take(service, "a")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=float(i)))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.agents, metrics.agent_tokens, metrics.reward_mean) == ({}, {}, 0.5)


async def test_an_agents_call_that_outlives_its_episode_is_counted_for_that_agent(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _request: "123456")
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grant = await take(service, "game")
        episode, agent = service.caller_of(key_of(service, grant, "seer").api_key)
        call = ChatCall(messages=[{"role": "user", "content": "x"}], agent=agent)
        stream = service.answer_stream(episode, call)
        await anext(stream)
        await service.abort(grant.episode_id, AbortRequest())
        with pytest.raises(EpisodeGone):
            await asyncio.wait_for(_drained(stream), 5)
        for i in range(2):
            await game(service, i)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].agent_tokens["seer"]["dropped:aborted_call"] == 1


async def _drained(stream):
    return [delta async for delta in stream]


async def test_a_server_killed_in_its_update_says_the_same_of_its_agents(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        gate = fleet.latest.train_gate = asyncio.Event()
        lost = await take(service, "game")
        await say(service, key_of(service, lost, "seer").api_key)
        await service.abort(lost.episode_id, AbortRequest())
        for i in range(2):
            await game(service, i)
        await retry_until(lambda: service.status().state is EngineState.WEIGHT_SYNCING)
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
        gate.set()
        await retry_until(lambda: service.status().step == 1)
        whole = service.metrics(0)[0]
    async with toy_service(tmp_path / "two", resume=True) as service:
        await retry_until(lambda: service.status().step == 1)
        resumed = service.metrics(0)[0]
    same = ("agents", "agent_tokens", "tokens", "clients", "task_sets", "groups_tried", "rows")
    assert {k: getattr(resumed, k) for k in same} == {k: getattr(whole, k) for k in same}
    assert set(whole.agent_tokens["seer"]) == {"dropped:episode_aborted", "trained"}
