"""One episode of an agent in a file, on a live server."""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

from swarm.client import ClientUsageError, SwarmClient, Task, TaskStream
from swarm.client.debug import Debugged, choose_task, debug_agent, load_agent
from swarm.client.episode import AsyncEpisode, Episode
from swarm.protocol.errors import StateError
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.testing.live_server import live_server


class Module:
    """A file with ``tasks``."""

    def __init__(self, tasks: Any = None) -> None:
        if tasks is not None:
            self.tasks = tasks


def chosen(tasks: Any, wanted: str | None = None) -> str:
    return choose_task(Module(tasks), wanted).task_id  # type: ignore[arg-type]


def test_a_task_is_chosen_by_its_id_or_its_place() -> None:
    named = [Task("a"), Task("2"), Task("c")]
    assert [chosen(named, wanted) for wanted in (None, "c", "0", "2")] == ["a", "c", "a", "2"]
    stream = TaskStream([{"id": "x"}, {"id": "y"}])
    assert [chosen(stream, wanted) for wanted in (None, "y", "1", "3")] == ["x", "y", "y", "y"]
    assert chosen(None, "anything") == "anything"
    assert chosen(None) == "debug"
    for wanted in ("3", "nobody", "-1"):
        with pytest.raises(ClientUsageError, match="no task"):
            chosen(named, wanted)


def test_an_agents_neighbours_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "my_reward_of_debug.py").write_text("def score():\n    return 1.0\n")
    (tmp_path / "my_agent.py").write_text(
        "from my_reward_of_debug import score\ndef agent(episode, task):\n    return score()\n"
    )
    agent, _ = load_agent(str(tmp_path / "my_agent.py"))
    assert agent(None, None) == 1.0
    with pytest.raises(ClientUsageError, match="no callable 'other'"):
        load_agent(f"{tmp_path / 'my_agent.py'}:other")
    with pytest.raises(ClientUsageError, match="not a Python file"):
        load_agent(str(tmp_path / "absent.py"))


def fails(episode: Episode, task: Task) -> float:
    episode.chat([{"role": "user", "content": "Compute 1+1."}])
    raise LookupError("no such answer")


async def fails_too(episode: AsyncEpisode, task: Task) -> float:
    await episode.chat([{"role": "user", "content": "Compute 1+1."}])
    raise LookupError("no such answer")


@pytest.mark.parametrize("agent", [fails, fails_too])
def test_a_failure_is_told_while_the_episode_is_open_and_begins_in_the_agent(
    client: SwarmClient, agent: Any
) -> None:
    states: list[EpisodeState] = []

    def look(error: Exception) -> None:
        [open_now] = [c for c in client.clients() if c.open]
        states.append(EpisodeState.OPEN if open_now.open == 1 else EpisodeState.ABORTED)

    result = debug_agent(client, agent, Task("t"), on_error=look)
    assert states == [EpisodeState.OPEN]
    assert (result.trace.state, result.trace.kind) == (EpisodeState.ABORTED, EpisodeKind.EVAL)
    assert len(result.trace.calls) == 1
    assert isinstance(result.error, LookupError)
    frames = traceback.extract_tb(result.error.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]


def test_a_server_without_an_engine_is_told_at_once(client: SwarmClient) -> None:
    client.stop()
    with pytest.raises(StateError, match="OFFLINE"):
        debug_agent(client, fails, Task("t"))


def test_a_debugged_episode_never_trains(client: SwarmClient) -> None:
    def good(episode: Episode, task: Task) -> float:
        episode.chat([{"role": "user", "content": "Compute 1+1."}])
        return 1.0

    result: Debugged = debug_agent(client, good, Task("t"))
    assert (result.error, result.trace.state) == (None, EpisodeState.FINISHED)
    assert client.pool().episodes_finished == 0
    assert client.pool().task_ids == []


def test_a_breakpoint_that_stops_the_event_loop_does_not_cost_the_lease(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    async def stops(episode: AsyncEpisode, task: Task) -> float:
        """Does to the loop what a person at a breakpoint does, until the lease was renewed often enough to have ended else."""
        assert asyncio.get_running_loop().is_running()
        renewed, before, until = 0, 0.0, time.monotonic() + 30
        while renewed < 6 and time.monotonic() < until:
            [info] = [c for c in onlooker.clients() if c.client_id.endswith("-eval")]
            renewed += info.lease_left_s > before
            before = info.lease_left_s
        await episode.chat([{"role": "user", "content": "Compute 1+1."}])
        return float(renewed)

    with (
        live_server(tmp_path / "state", lease_s=1.0) as server,
        SwarmClient(server.url, server.tokens.admin) as client,
        SwarmClient(server.url, server.tokens.admin) as onlooker,
    ):
        client.configure(small)
        client.start()
        result = debug_agent(client, stops, Task("t"))
    assert (result.error, result.trace.reward) == (None, 6.0)
