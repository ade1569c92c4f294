"""Swarm groups against two live toy servers: granted by all or none, finished on all or none."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from swarm.client import (
    AsyncSwarmClient,
    AsyncSwarmGroup,
    ClientUsageError,
    GroupRole,
    SwarmClient,
    SwarmGroup,
    TrainingComplete,
    WaitTimeout,
)
from swarm.protocol.errors import ConfigError, EngineFailed, RewardError
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState
from swarm.testing.live_server import LiveServer, live_server
from swarm.testing.toy_engine import ToyFleet

HELLO = [{"role": "user", "content": "Compute 1+1."}]


@pytest.fixture
def pair(tmp_path: Path) -> Generator[dict[str, LiveServer]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(live_server(tmp_path / name)) for name in ("small", "large")
        }


@pytest.fixture
def group(pair: dict[str, LiveServer], small: dict[str, Any]) -> Generator[SwarmGroup]:
    """Both servers serve the small config."""
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(clients, roles={"planner": "small", "solver": "large"}) as one:
        one.configure(dict.fromkeys(pair, small))
        one.start()
        yield one


@pytest.fixture
async def async_group(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> AsyncGenerator[AsyncSwarmGroup]:
    clients = {n: AsyncSwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    async with AsyncSwarmGroup(clients, roles={"planner": "small", "solver": "large"}) as one:
        await one.configure(dict.fromkeys(pair, small))
        await one.start()
        yield one


def trace(group: SwarmGroup, server: str, episode_id: str) -> Any:
    return group.servers[server].trace(episode_id)


def test_one_episode_is_played_by_two_models_and_finished_on_both(group: SwarmGroup) -> None:
    with group.episode("t1") as episode:
        planned = episode.role("planner").chat(HELLO)
        solved = episode.role("solver").chat([*HELLO, planned.message, *HELLO])
        assert planned.finish_reason
        assert solved.finish_reason
        outcome = episode.finish(0.5, {"x": 1.0}, rewards={"solver": 2.0})
    assert (outcome.accepted, outcome.split) == (True, {})
    assert set(outcome.servers) == {"small", "large"}
    records = {s: trace(group, s, i) for s, i in episode.ids.items()}
    assert {s: r.reward for s, r in records.items()} == {"small": 0.5, "large": 2.0}
    assert {s: len(r.calls) for s, r in records.items()} == {"small": 1, "large": 1}
    assert {r.metrics["x"] for r in records.values()} == {1.0}


async def test_the_async_group_does_the_same(async_group: AsyncSwarmGroup) -> None:
    async with async_group.episode("t1") as episode:
        await episode.role("planner").chat(HELLO)
        await episode.role("solver").chat(HELLO)
        outcome = await episode.finish(1.0)
        assert await episode.finish(0.0) is outcome
    assert outcome.accepted
    pools = [await client.pool() for client in async_group.servers.values()]
    assert [pool.episodes_finished for pool in pools] == [1, 1]


def test_each_server_trains_at_its_own_pace_and_plays_on_when_it_is_trained(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(clients) as group:
        group.configure(
            {
                "small": {**small, "stop_at_step": 1, "batch": {"tasks": 1, "repeat": 2}},
                "large": {**small, "stop_at_step": 1, "batch": {"tasks": 2, "repeat": 2}},
            }
        )
        group.start()
        for number in range(4):
            with group.episode(f"t{number // 2}") as episode:
                episode.role("small").chat(HELLO)
                episode.role("large").chat(HELLO)
                assert episode.training == (["small", "large"] if number < 2 else ["large"])
                assert episode.finish(float(number % 2)).accepted
            if number == 1:
                group.servers["small"].wait_step(0)
        group.servers["large"].wait_step(0)
        with pytest.raises(TrainingComplete), group.episode("t9"):
            pass
        with group.episode("t9", kind="eval") as episode:
            assert (episode.training, episode.kind) == ([], EpisodeKind.EVAL)
        statuses = group.status()
        metrics = group.metrics()
    assert {s.state for s in statuses.values()} == {EngineState.TRAINED}
    assert {s: [m.episodes for m in ms] for s, ms in metrics.items()} == {
        "small": [2],
        "large": [4],
    }


def test_a_server_that_grants_nothing_gives_the_others_their_reservations_back(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(clients) as group:
        group.configure({"small": small, "large": {**small, "batch": {"tasks": 1, "repeat": 1}}})
        group.start()
        busy = clients["large"].episode("other", task_set="elsewhere")
        with busy:  # the only seat of the large server's step
            with (
                pytest.raises(WaitTimeout, match="'large'"),
                group.episode("t1", grant_timeout_s=0.3),
            ):
                pass
            assert clients["small"].pool().episodes_open == 0
            assert clients["small"].pool().wanted == []


def test_an_agent_that_raises_ends_the_episode_on_both(group: SwarmGroup) -> None:
    with pytest.raises(LookupError), group.episode("t1") as episode:
        raise LookupError
    states = {trace(group, s, i).state for s, i in episode.ids.items()}
    assert states == {EpisodeState.ABORTED}


def test_what_one_server_refuses_no_other_trains(group: SwarmGroup) -> None:
    with group.episode("t1") as episode:
        episode.role("planner").chat(HELLO)
        group.servers["large"].stop()  # its open episodes are aborted
        outcome = episode.finish(1.0)
    assert not outcome.accepted
    assert outcome.state is EpisodeState.ABORTED
    assert "'large' refused" in outcome.reason
    assert trace(group, "small", episode.ids["small"]).state is EpisodeState.ABORTED
    assert group.servers["small"].pool().episodes_finished == 0


def test_a_finish_that_cannot_be_right_is_refused_before_anything_is_said(
    group: SwarmGroup,
) -> None:
    with group.episode("t1") as episode:
        for wrong in (
            {"reward": float("nan")},
            {"rewards": {"planner": 1.0}},
            {"reward": 1.0, "metrics": {"x": float("inf")}},
        ):
            with pytest.raises(RewardError):
                episode.finish(**wrong)
        for wrong in ({"rewards": {"critic": 1.0}}, {"reward": 1.0, "tokens": {"huge": []}}):
            with pytest.raises(ClientUsageError, match="Roles: planner, solver"):
                episode.finish(**wrong)
        assert episode.finish(1.0).accepted


def test_tokens_that_do_not_fit_end_the_episode_everywhere(group: SwarmGroup) -> None:
    tokens = {"large": [{"call_index": 3, "mask": [True]}]}
    with pytest.raises(RewardError, match="Server 'large'"), group.episode("t1") as episode:
        episode.finish(1.0, tokens=tokens)
    states = {trace(group, s, i).state for s, i in episode.ids.items()}
    assert states == {EpisodeState.ABORTED}


def test_several_roles_of_one_server_have_keys_and_rewards_of_their_own(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    roles: dict[str, GroupRole | str] = {
        "planner": "small",
        "solver": "large",
        "critic": GroupRole("large", train=False),
    }
    with SwarmGroup(clients, roles=roles) as group:
        group.configure(dict.fromkeys(pair, small))
        group.start()
        with group.episode("t1") as episode:
            for role in ("planner", "solver", "critic"):
                episode.role(role).chat(HELLO)
            assert episode.finish(1.0, rewards={"solver": 3.0}).accepted
        record = trace(group, "large", episode.ids["large"])
    assert {call.agent for call in record.calls} == {"solver", "critic"}
    assert record.agents == {"solver": True, "critic": False}
    assert (record.reward, record.rewards) == (1.0, {"solver": 3.0})


def test_the_openai_sdk_and_any_program_find_their_role(group: SwarmGroup) -> None:
    with group.episode("t1") as episode:
        for role, server in (("planner", "small"), ("solver", "large")):
            way = episode.role(role)
            assert way.environ() == {
                "OPENAI_BASE_URL": way.base_url,
                "OPENAI_API_BASE": way.base_url,
                "OPENAI_API_KEY": way.api_key,
                "ANTHROPIC_BASE_URL": way.base_url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": way.api_key,
            }
            assert way.base_url.startswith(group.servers[server].settings.url)
            sdk = way.openai()
            sdk.chat.completions.create(model="policy", messages=HELLO)  # pyright: ignore[reportArgumentType]
            assert way.api_key not in repr(episode)
        with pytest.raises(ClientUsageError, match="'critic'"):
            episode.role("critic")
        assert episode.finish(1.0).accepted
    assert [len(trace(group, s, i).calls) for s, i in episode.ids.items()] == [1, 1]


def test_agreement_goes_to_every_server_that_asks_for_it(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    batches = {
        "small": {"tasks": 8, "repeat": 2, "policy": "C5"},
        "large": {"tasks": 1, "repeat": 2},
    }
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(clients) as group:
        group.configure({n: {**small, "batch": batches[n]} for n in pair})
        group.start()
        for number in range(2):
            with group.episode("t1") as episode:
                for role in episode.server_roles:
                    episode.role(role).chat(HELLO)
                episode.finish(float(number))
        replies = group.agree()
        assert (set(replies), replies["small"].fires) == ({"small"}, True)
        steps = {s: c.wait_step(0).step for s, c in clients.items()}
    assert steps == {"small": 1, "large": 1}


def test_a_config_that_one_server_refuses_is_set_nowhere(group: SwarmGroup) -> None:
    group.stop()
    before = {s: c.config() for s, c in group.servers.items()}
    with pytest.raises(ConfigError, match="Server 'large'"):
        group.configure({"small": {"engine": "toy", "seed": 7}, "large": {"sed": 7}})
    shown = group.configure({"small": {"engine": "toy", "seed": 7}}, dry_run=True)
    assert "seed" in {change.key for change in shown["small"]}
    assert {s: c.config() for s, c in group.servers.items()} == before
    with pytest.raises(ClientUsageError, match="no server of this group"):
        group.configure({"huge": {}})


def test_an_engine_that_does_not_boot_leaves_no_other_running(
    pair: dict[str, LiveServer], small: dict[str, Any]
) -> None:
    clients = {n: SwarmClient(s.url, s.tokens.admin) for n, s in pair.items()}
    with SwarmGroup(clients) as group:
        group.configure(dict.fromkeys(pair, small))
        fleet = pair["large"].fleet
        assert isinstance(fleet, ToyFleet)
        fleet.prepare = lambda engine: setattr(engine, "refuse_boot", "no memory")
        with pytest.raises(EngineFailed, match="Server 'large'"):
            group.start()
        assert {s.state for s in group.status().values()} == {EngineState.OFFLINE}


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ({"a": "huge"}, "of server 'huge'"),
        ({"a": "small"}, "'large' plays no role"),
        ({"a b": "small", "c": "large"}, "other characters"),
        (
            {"a": GroupRole("small", train=False), "c": GroupRole("large", train=False)},
            "no role of it trains",
        ),
    ],
)
def test_a_group_that_cannot_play_says_why(roles: dict[str, Any], why: str) -> None:
    clients = {n: SwarmClient("http://127.0.0.1:1", "t") for n in ("small", "large")}
    with pytest.raises(ClientUsageError, match=why):
        SwarmGroup(clients, roles=roles)
