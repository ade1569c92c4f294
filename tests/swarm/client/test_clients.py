"""Both clients against a live server."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient, TrainingComplete, WaitTimeout
from swarm.protocol.errors import AuthError, ConfigError, EpisodeGone, RewardError, StateError
from swarm.protocol.states import EngineState, EpisodeState, Role
from swarm.testing.live_server import LiveServer

pytestmark = pytest.mark.every_engine

HELLO = [{"role": "user", "content": "Compute 1+2."}]


def play(client: SwarmClient, task_id: str, reward: float) -> str:
    with client.episode(task_id) as episode:
        episode.chat(HELLO)
        assert episode.finish(reward).accepted
    return episode.id


def test_a_run_by_hand_from_offline_to_trained(server: LiveServer, small: dict[str, Any]) -> None:
    with SwarmClient(server.url, server.tokens.admin) as client:
        assert client.status().state is EngineState.OFFLINE
        changes = client.configure({**small, "stop_at_step": 1})
        assert "stop_at_step" in {change.key for change in changes}
        assert client.config().stop_at_step == 1
        assert client.start().state is EngineState.ROLLING
        for task in ("a", "b"):
            for reward in (0.0, 1.0):
                play(client, task, reward)
        status = client.wait_step(0, timeout_s=10)
        assert status.step == 1
        with pytest.raises(TrainingComplete):
            play(client, "c", 1.0)
        assert [m.episodes for m in client.metrics()] == [4]
        assert [c.step for c in client.checkpoints()][-1] == 1
        assert client.stop().state is EngineState.OFFLINE


def test_chat_gives_the_message_and_the_trace_has_its_tokens(client: SwarmClient) -> None:
    with client.episode("t") as episode:
        answer = episode.chat(HELLO, temperature=None, max_tokens=8)
        episode.finish(0.5, {"turns": 1.0})
    trace = client.trace(episode.id)
    assert answer.message["role"] == "assistant"
    assert answer.finish_reason in ("stop", "length")
    assert answer.usage["completion_tokens"] == len(trace.calls[0].sampled_ids)
    assert (trace.reward, trace.metrics) == (0.5, {"turns": 1.0})
    assert client.trace(episode.id, calls_too=False).calls == []


def test_an_exception_aborts_the_episode_and_goes_on(client: SwarmClient) -> None:
    with pytest.raises(ZeroDivisionError), client.episode("t") as episode:
        _ = 1 / 0
    trace = client.trace(episode.id)
    assert trace.state is EpisodeState.ABORTED
    assert "ZeroDivisionError" in trace.reason
    with pytest.raises(EpisodeGone):
        episode.chat(HELLO)


def test_leaving_without_finish_aborts_train_and_finishes_eval(
    client: SwarmClient, caplog: pytest.LogCaptureFixture
) -> None:
    with client.episode("t") as train:
        pass
    with client.episode("t", kind="eval") as evaluation:
        pass
    assert client.trace(train.id).state is EpisodeState.ABORTED
    assert client.trace(evaluation.id).state is EpisodeState.FINISHED
    assert "without finish()" in caplog.text


def test_a_reward_that_is_not_finite_never_leaves_the_client(client: SwarmClient) -> None:
    with client.episode("t") as episode:
        with pytest.raises(RewardError):
            episode.finish(float("nan"))
        assert episode.finish(1.0).accepted


def test_a_wrong_token_and_a_wrong_key_say_so(server: LiveServer) -> None:
    with SwarmClient(server.url, "nonsense") as client, pytest.raises(AuthError):
        client.status()
    with (
        SwarmClient(server.url, server.tokens.admin) as client,
        pytest.raises(ConfigError) as caught,
    ):
        client.configure({"batch": {"taks": 3}})
    assert "tasks" in caught.value.hint


def test_waiting_for_a_step_ends_at_the_deadline_and_says_what_is_missing(
    client: SwarmClient,
) -> None:
    with pytest.raises(WaitTimeout, match="episodes"):
        client.wait_step(0, timeout_s=0.2)
    client.stop()
    with pytest.raises(StateError, match="OFFLINE"):
        client.wait_step(0, timeout_s=5)


def test_an_episode_that_is_not_needed_is_refused_at_the_deadline(client: SwarmClient) -> None:
    with (
        client.episode("a"),
        client.episode("a"),
        client.episode("b"),
        client.episode("b"),
        pytest.raises(WaitTimeout, match="step 0"),
        client.episode("c", grant_timeout_s=0.1),
    ):
        pytest.fail("the step needs no fifth episode")


async def test_the_async_client_plays_an_episode(async_client: AsyncSwarmClient) -> None:
    async with async_client.episode("t", task_set="s") as episode:
        answer = await episode.chat(HELLO)
        assert isinstance(answer.text, str)
        assert (await episode.finish(1.0)).accepted
    assert "sk-swarm" not in repr(episode)
    with pytest.raises(KeyError):
        async with async_client.episode("t", task_set="s") as broken:
            raise KeyError("x")
    assert (await async_client.trace(broken.id)).state is EpisodeState.ABORTED
    assert (await async_client.pool()).episodes_finished == 1


async def test_the_environment_of_an_episode_works_for_the_openai_sdk(
    async_client: AsyncSwarmClient,
) -> None:
    pytest.importorskip("openai")
    async with async_client.episode("t", kind="eval") as episode:
        environ = episode.environ()
        assert environ["OPENAI_BASE_URL"] == environ["OPENAI_API_BASE"] == episode.base_url
        assert f"{environ['ANTHROPIC_BASE_URL']}/v1" == episode.base_url
        assert environ["ANTHROPIC_API_KEY"] == environ["OPENAI_API_KEY"] == episode.api_key
        sdk = episode.async_openai()
        completion = await sdk.chat.completions.create(model="policy", messages=HELLO)  # type: ignore[arg-type]
        assert completion.choices[0].message.role == "assistant"
    assert (await async_client.trace(episode.id)).call_count == 1


def test_the_synchronous_openai_client_shares_one_pool(client: SwarmClient) -> None:
    pytest.importorskip("openai")
    with client.episode("a", kind="eval") as first, client.episode("b", kind="eval") as second:
        for episode in (first, second):
            episode.openai().chat.completions.create(model="policy", messages=HELLO)  # type: ignore[arg-type]
    assert client.trace(first.id).call_count == client.trace(second.id).call_count == 1


async def test_roles_register_under_ids_of_their_own_and_heartbeat(
    async_client: AsyncSwarmClient,
) -> None:
    trainer = await async_client.register()
    evaluator = await async_client.register(Role.EVALUATOR)
    assert trainer.client_id == async_client.client_id
    assert evaluator.client_id == f"{async_client.client_id}-eval"
    assert (await async_client.heartbeat()).lease_s > 0


def test_an_eval_token_evaluates_and_does_not_train(
    client: SwarmClient, server: LiveServer
) -> None:
    with SwarmClient(server.url, server.tokens.eval) as evaluator:
        with evaluator.episode("t", kind="eval") as episode:
            episode.chat(HELLO)
        assert evaluator.trace(episode.id).call_count == 1
        with pytest.raises(AuthError), evaluator.episode("t"):
            pytest.fail("the eval token must not train")
    assert client.pool().episodes_finished == 0
