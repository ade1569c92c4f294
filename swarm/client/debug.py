"""One never-training episode of an agent in a file, in the main thread and without deadlines, so that breakpoints work."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, cast

from swarm.client.agents import Agent, is_async, read_score
from swarm.client.client import SwarmClient
from swarm.client.errors import ClientUsageError
from swarm.client.streams import TaskStream
from swarm.client.tasks import Task, TaskSet, as_task_set
from swarm.client.waiting import offline
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EngineState, EpisodeKind

NO_DEADLINE_S = 30 * 24 * 3600.0
"""Thirty days: longer than anyone sits at a breakpoint."""

SEARCHED = 100_000
"""Tasks that are looked through for an id."""

OnError = Callable[[Exception], Any]


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


def choose_task(module: ModuleType, wanted: str | None = None) -> Task:
    """The task to debug: of the module's ``tasks`` the one with the id ``wanted``, else the one at that place (default: the first).

    A module without ``tasks`` gets a bare task of that id.

    Raises:
        ClientUsageError: the module has tasks, but not this one.
    """
    tasks: Any = getattr(module, "tasks", None)
    if tasks is None:
        return Task(wanted or "debug")
    if isinstance(tasks, TaskStream):
        return _from_stream(tasks, wanted or "0")
    found: TaskSet = as_task_set(tasks)
    size = len(found)
    if wanted is None:
        return found[0]
    for i in range(min(size, SEARCHED)):
        if found[i].task_id == wanted:
            return found[i]
    if wanted.isdecimal() and int(wanted) < size:
        return found[int(wanted)]
    raise _no_task(wanted, size)


def _from_stream(stream: TaskStream, wanted: str) -> Task:
    place = int(wanted) if wanted.isdecimal() else None
    number, kept = -1, None
    for number, task in enumerate(islice(stream, SEARCHED)):
        if task.task_id == wanted:
            return task
        kept = task if number == place else kept
    if kept is None:
        raise _no_task(wanted, number + 1)
    return kept


def _no_task(wanted: str, size: int) -> ClientUsageError:
    return ClientUsageError(
        f"There is no task {wanted!r} among the file's {size} tasks.",
        hint=f"Give a task's id or its place, 0 to {size - 1}.",
    )


def debug_agent(
    client: SwarmClient,
    agent: Agent,
    task: Task,
    task_set: str = "debug",
    *,
    on_error: OnError | None = None,
) -> Debugged:
    """Play one eval episode here and now. An exception of the agent aborts the episode and is part of the answer.

    ``on_error`` is called with it first, while the episode is still open (a debugger can look around and ask on).

    Raises:
        StateError: the server is OFFLINE: no episode would be granted.
        SwarmError: no episode was granted, or the server went away.
    """
    status = client.status()
    if status.state is EngineState.OFFLINE:
        raise offline(status)
    # This registration beats in a thread: a breakpoint that stops an event loop does not cost the episode its lease.
    client.ensure_registered(EpisodeKind.EVAL)
    if is_async(agent):
        return asyncio.run(_debug_async(client, agent, task, task_set, on_error))
    error: Exception | None = None
    with client.episode(
        task.task_id, task_set=task_set, kind=EpisodeKind.EVAL, idle_deadline_s=NO_DEADLINE_S
    ) as episode:
        try:
            reward, metrics = _score(agent(episode, task))
        except Exception as caught:  # noqa: BLE001 - whatever the agent raised is what is being looked for
            error = _of_the_agent(caught)
            if on_error is not None:
                on_error(error)
            episode.abort(repr(caught))
        else:
            if episode.outcome is None:
                episode.finish(reward, metrics)
    return Debugged(client.trace(episode.id), error)


async def _debug_async(
    client: SwarmClient, agent: Agent, task: Task, task_set: str, on_error: OnError | None
) -> Debugged:
    from swarm.client.twins import async_twin  # noqa: PLC0415 - aiohttp only where it is needed

    error: Exception | None = None
    async with async_twin(client) as twin:
        async with twin.episode(
            task.task_id, task_set=task_set, kind=EpisodeKind.EVAL, idle_deadline_s=NO_DEADLINE_S
        ) as episode:
            try:
                reward, metrics = _score(await agent(episode, task))
            except Exception as caught:  # noqa: BLE001 - as above
                error = _of_the_agent(caught)
                if on_error is not None:
                    on_error(error)
                await episode.abort(repr(caught))
            else:
                if episode.outcome is None:
                    await episode.finish(reward, metrics)
        return Debugged(await twin.trace(episode.id), error)


def _of_the_agent(error: Exception) -> Exception:
    """The same error, its traceback beginning in the agent's code instead of here."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)


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
    content = message.get("content")
    pieces = cast("list[Any]", content) if isinstance(content, list) else [content]
    parts = [_piece(piece) for piece in pieces if piece]
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        function: dict[str, Any] = call.get("function") or {}
        parts.append(f"{function.get('name')}({function.get('arguments')})")
    return " ".join(parts) or "(nothing)"


def _piece(piece: Any) -> str:
    """A text, or a picture in a few words."""
    if not isinstance(piece, dict):
        return str(piece)
    part = cast("dict[str, Any]", piece)
    if part.get("type") == "image":
        size = f"{part.get('width')} x {part.get('height')}"
        return f"[{part.get('media_type')}, {size}, {str(part.get('sha256'))[:12]}]"
    return str(part.get("text", part))


def _facts(call: CallRecord) -> str:
    mean = sum(call.logprobs) / len(call.logprobs) if call.logprobs else 0.0
    return (
        f"{len(call.prompt_ids)} prompt + {len(call.sampled_ids)} sampled tokens, ended by {call.finish_reason}, "
        f"temperature {call.temperature:g}, mean log-probability {mean:.3f}, policy version {call.policy_version}"
    )
