"""One never-training episode of an agent in a file, in the main thread and without deadlines, so that breakpoints work."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from swarm.client.agents import Agent, is_async, read_score
from swarm.client.client import SwarmClient
from swarm.client.errors import ClientUsageError
from swarm.client.tasks import Task, TaskSet, as_task_set
from swarm.client.twins import async_twin
from swarm.protocol.messages import CallRecord, EpisodeTrace
from swarm.protocol.states import EpisodeKind

NO_DEADLINE_S = 30 * 24 * 3600.0
"""Thirty days: longer than anyone sits at a breakpoint."""


@dataclass(frozen=True, slots=True)
class Debugged:
    """What the server saw, and what the agent raised."""

    trace: EpisodeTrace
    error: Exception | None = None
    """None = the agent returned."""


def load_agent(target: str, default: str = "agent") -> tuple[Agent, ModuleType]:
    """Load ``client.py`` or ``client.py:name`` and return the agent (attribute ``agent`` by default) and its module.

    Raises:
        ClientUsageError: no such file, or no such callable in it.
    """
    file, _, name = target.partition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise ClientUsageError(
            f"{file!r} is not a Python file.", hint="Give client.py or client.py:agent."
        )
    module = importlib.util.module_from_spec(spec)
    # As for a script: its neighbours can be imported, and pickled classes find their module.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    agent = getattr(module, name or default, None)
    if not callable(agent):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ClientUsageError(
            f"{file!r} has no callable {name or default!r}.",
            hint=f"Name one as {file}:NAME; callables there: {', '.join(known) or 'none'}.",
        )
    return cast("Agent", agent), module


def choose_task(module: ModuleType, task_id: str | None, index: int) -> Task:
    """The task to debug: ``tasks[index]`` of the module, or a bare task of that id when the module has no ``tasks``.

    Raises:
        ClientUsageError: the module has tasks, but not this one, or no task can be told.
    """
    tasks: Any = getattr(module, "tasks", None)
    if tasks is None:
        return Task(task_id or "debug")
    found: TaskSet = as_task_set(tasks)
    if task_id is None:
        if index >= len(found):
            raise ClientUsageError(
                f"There are only {len(found)} tasks.", hint="Give a smaller --index."
            )
        return found[index]
    for i in range(len(found)):
        if found[i].task_id == task_id:
            return found[i]
    raise ClientUsageError(
        f"There is no task {task_id!r} in the file's tasks.", hint="Use --index."
    )


def debug_agent(client: SwarmClient, agent: Agent, task: Task, task_set: str = "debug") -> Debugged:
    """Play one eval episode here and now. An exception of the agent aborts the episode and is part of the answer.

    Raises:
        SwarmError: no episode was granted, or the server went away.
    """
    if is_async(agent):
        return asyncio.run(_debug_async(client, agent, task, task_set))
    error: Exception | None = None
    with client.episode(
        task.task_id, task_set=task_set, kind=EpisodeKind.EVAL, idle_deadline_s=NO_DEADLINE_S
    ) as episode:
        try:
            reward, metrics = _score(agent(episode, task))
            if episode.outcome is None:
                episode.finish(reward, metrics)
        except Exception as caught:  # noqa: BLE001 - whatever the agent raised is what is being looked for
            error = caught
            episode.abort(repr(caught))
    return Debugged(client.trace(episode.id), error)


async def _debug_async(client: SwarmClient, agent: Agent, task: Task, task_set: str) -> Debugged:
    error: Exception | None = None
    async with async_twin(client) as twin:
        async with twin.episode(
            task.task_id, task_set=task_set, kind=EpisodeKind.EVAL, idle_deadline_s=NO_DEADLINE_S
        ) as episode:
            try:
                reward, metrics = _score(await agent(episode, task))
                if episode.outcome is None:
                    await episode.finish(reward, metrics)
            except Exception as caught:  # noqa: BLE001 - as above
                error = caught
                await episode.abort(repr(caught))
        return Debugged(await twin.trace(episode.id), error)


def _score(returned: Any) -> tuple[float | None, dict[str, float]]:
    return (None, {}) if returned is None else read_score(returned)


def describe(trace: EpisodeTrace) -> Iterator[str]:
    """The trace as lines to read: each call's new messages, its answer, tokens and why it ended."""
    yield f"episode {trace.episode_id} ({trace.kind.value}, {trace.state.value}) of task {trace.task_set}/{trace.task_id}"
    yield f"step {trace.step}, policy version {trace.policy_version}, {len(trace.calls)} calls"
    shown = 0
    for call in trace.calls:
        yield ""
        extends = shown <= len(call.messages)
        yield f"call {call.index}" + ("" if extends else " (does not extend the previous one)")
        for message in call.messages[shown if extends else 0 :]:
            yield f"  {message.get('role')}: {_shown(message)}"
        yield f"  -> assistant: {_shown(call.reply)}"
        yield f"     {_facts(call)}"
        shown = len(call.messages) + 1  # the next call repeats the answer in its history
    yield ""
    yield f"reward {trace.reward}" + "".join(f", {k} {v:g}" for k, v in trace.metrics.items())


def _shown(message: dict[str, Any]) -> str:
    parts = [str(message["content"])] if message.get("content") else []
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        function: dict[str, Any] = call.get("function") or {}
        parts.append(f"{function.get('name')}({function.get('arguments')})")
    return " ".join(parts) or "(nothing)"


def _facts(call: CallRecord) -> str:
    mean = sum(call.logprobs) / len(call.logprobs) if call.logprobs else 0.0
    return (
        f"{len(call.prompt_ids)} prompt + {len(call.sampled_ids)} sampled tokens, ended by {call.finish_reason}, "
        f"temperature {call.temperature:g}, mean log-probability {mean:.3f}, policy version {call.policy_version}"
    )
