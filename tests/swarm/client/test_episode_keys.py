"""Agents, own advantages, prepare and commit through both clients and a live server."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import EpisodeGone, StateError
from swarm.testing.live_server import LiveServer

pytestmark = pytest.mark.every_engine

HELLO = [{"role": "user", "content": "Compute 1+2."}]


def test_a_game_of_two_agents_trains_each_by_its_own_reward(
    server: LiveServer, small: dict[str, Any]
) -> None:
    batch = {"tasks": 1, "repeat": 2, "drain_deadline_s": 0.2, "policy": "C3"}
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({**small, "stop_at_step": 1, "batch": batch})
        client.start()
        for i in range(2):
            with client.episode("game") as episode:
                seer, wolf = episode.key("seer"), episode.key("wolf")
                judge = episode.key("judge", train=False)
                for agent in (seer, wolf, judge):
                    agent.chat(HELLO)
                rewards = {"seer": float(i), "wolf": float(-i)}
                assert episode.finish(rewards=rewards).accepted
        client.wait_step(0, timeout_s=10)
        (metrics,) = client.metrics()
    assert metrics.agents == {"seer": 0.5, "wolf": -0.5}
    assert set(metrics.agent_tokens["judge"]) == {"masked:agent_not_trained"}
    assert set(metrics.agent_tokens["seer"]) == {"trained"}


def test_an_agents_key_points_a_program_or_an_sdk_at_its_seat(client: SwarmClient) -> None:
    pytest.importorskip("openai")
    with client.episode("t") as episode:
        seer = episode.key("seer")
        assert seer.environ()["OPENAI_API_KEY"] == seer.api_key != episode.api_key
        assert seer.environ()["OPENAI_BASE_URL"] == episode.base_url
        assert seer.api_key not in repr(seer)
        assert "'seer'" in repr(seer)
        answer = seer.openai().chat.completions.create(model="policy", messages=HELLO)  # type: ignore[arg-type]
        assert answer.choices[0].message.role == "assistant"
        with pytest.raises(StateError):
            episode.key("seer", train=False)
        episode.finish(1.0)
        with pytest.raises(EpisodeGone):
            episode.key("late")
    assert [call.agent for call in client.trace(episode.id).calls] == ["seer"]


def test_prepare_and_commit_end_an_episode(client: SwarmClient) -> None:
    with client.episode("t") as episode:
        episode.chat(HELLO)
        with pytest.raises(StateError):
            episode.commit()
        promise = episode.prepare(0.5, {"turns": 1.0})
        assert promise.prepared
        with pytest.raises(EpisodeGone, match="prepared"):
            episode.chat(HELLO)
        assert episode.commit().accepted
        assert episode.commit().accepted
    trace = client.trace(episode.id)
    assert (trace.reward, trace.metrics) == (0.5, {"turns": 1.0})


def test_an_episode_that_was_prepared_and_left_is_aborted(client: SwarmClient) -> None:
    def agent() -> float:
        with client.episode("t") as episode:
            ids.append(episode.id)
            episode.prepare(0.5)
            return 1 / 0

    ids: list[str] = []
    with pytest.raises(ZeroDivisionError):
        agent()
    assert "ZeroDivisionError" in client.trace(ids[0]).reason


async def test_the_same_asynchronously(async_client: AsyncSwarmClient) -> None:
    async with async_client.episode("t") as episode:
        seer = await episode.key("seer")
        await seer.chat(HELLO)
        assert (await episode.prepare(rewards={"seer": 1.0})).prepared
        assert (await episode.commit()).accepted
    request = GrantRequest(client_id=async_client.client_id, task_id="t", reserve_s=30.0)
    grant = await async_client.grant(request)
    reserved = async_client.episode_of(grant, request)
    assert (await reserved.confirm()).episode_id == grant.episode_id
    await reserved.abort("enough")
    with pytest.raises(EpisodeGone):
        await reserved.confirm()
    trace = await async_client.trace(episode.id)
    assert (trace.rewards, trace.calls[0].agent) == ({"seer": 1.0}, "seer")
