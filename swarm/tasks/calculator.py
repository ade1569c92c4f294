"""The calculator game: "Compute 37+48+25." with a tool that adds exactly two numbers.

A good agent calls the tool once for every operand after the first and then answers; reward 1 for the right sum. The game is
played by ``run_agent`` (light path) or ``run_agent_openai`` (the same, through the OpenAI SDK), and scored by ``score``, a
pure function of the task and what was said.

Train and held-out problems come from separate random streams. A train problem that also is a held-out one is drawn again, up
to ``MAX_REDRAWS`` times; with a held-out list that covers most of the small problems (there are only 81 pairs of digits) a
repeat can still pass, and ``overlap`` counts such repeats.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from swarm.client.chat import ChatResult
from swarm.client.episode import AsyncEpisode
from swarm.client.tasks import Task
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import FinishReason

TASK_SET = "calculator"
SYSTEM = "Use the tool to add two numbers."
ERROR = "Error."
MAX_TURNS = 5
MAX_DIGITS = 6
"""Of one operand of the tool."""
MAX_REDRAWS = 100
OPERANDS = (2, 3, 4)
DIGITS = (1, 2, 3, 4)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Adds exactly two non-negative integers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "expression": {"type": "string", "description": "Two integers, as in 37+48"}
                },
                "required": ["expression"],
            },
        },
    }
]


# --- problems --------------------------------------------------------------------------------------------------


def draw(namespace: str, seed: int, index: int, attempt: int = 0) -> tuple[int, ...]:
    """Operands of one problem, a pure function of the arguments: 2 to 4 of them, all with the same 1 to 4 digits."""
    rng = random.Random(f"calculator/{namespace}/{seed}/{index}/{attempt}")  # noqa: S311 - problems, not secrets
    digits, count = rng.choice(DIGITS), rng.choice(OPERANDS)
    return tuple(rng.randint(10 ** (digits - 1), 10**digits - 1) for _ in range(count))


def held_out(size: int = 200, seed: int = 0) -> list[Task]:
    """The fixed held-out list: ``size`` different problems of the held-out stream of ``seed``."""
    found: dict[tuple[int, ...], Task] = {}
    index = 0
    while len(found) < size:
        operands = draw("held-out", seed, index)
        if operands not in found:
            found[operands] = _task(f"held-out-{seed}-{index}", operands)
        index += 1
    return list(found.values())


class CalculatorTasks:
    """The train stream; ``tasks[i]`` depends on ``seed``, ``i`` and the excluded problems only."""

    def __init__(
        self, *, seed: int = 0, size: int = 1_000_000, exclude: Iterable[Task] | None = None
    ) -> None:
        """``size`` problems that avoid those of ``exclude`` (default: ``held_out()``)."""
        self._seed, self._size = seed, size
        chosen = held_out() if exclude is None else exclude
        self._excluded = frozenset(tuple(task.payload["operands"]) for task in chosen)

    def __len__(self) -> int:
        """Number of problems."""
        return self._size

    def __getitem__(self, index: int) -> Task:
        """The problem at ``index``."""
        if not 0 <= index < self._size:
            msg = f"task index {index} is outside 0..{self._size - 1}"
            raise IndexError(msg)
        for attempt in range(MAX_REDRAWS):
            operands = draw("train", self._seed, index, attempt)
            if operands not in self._excluded:
                break
        else:
            operands = draw("train", self._seed, index)
        return _task(f"train-{self._seed}-{index}", operands)


def overlap(train: Iterable[Task], items: Iterable[Task]) -> int:
    """How many of ``train`` are problems of ``items`` too."""
    known = {tuple(task.payload["operands"]) for task in items}
    return sum(tuple(task.payload["operands"]) in known for task in train)


def item_set_hash(items: Sequence[Task]) -> str:
    """sha256 (hex, 16 digits) of the items in order: ids and operands."""
    rows = [[task.task_id, list(task.payload["operands"])] for task in items]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def _task(task_id: str, operands: tuple[int, ...]) -> Task:
    return Task(task_id, {"operands": list(operands), "answer": sum(operands)})


def question(task: Task) -> list[dict[str, Any]]:
    """The messages that open the game."""
    expression = "+".join(str(n) for n in task.payload["operands"])
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Compute {expression}."},
    ]


# --- rules -----------------------------------------------------------------------------------------------------


def add(expression: str) -> str:
    """What the tool answers: the sum of exactly two non-negative integers of at most 6 digits, else ``Error.``."""
    parts = expression.split("+")
    proper = [p for p in parts if p.isascii() and p.isdigit() and len(p) <= MAX_DIGITS]
    return str(int(proper[0]) + int(proper[1])) if len(parts) == len(proper) == 2 else ERROR


def answer_tool_call(arguments: str) -> str:
    """The tool's answer to a call with these JSON arguments; anything but ``{"expression": str}`` is ``Error.``."""
    try:
        expression = json.loads(arguments)["expression"]
    except (ValueError, KeyError, TypeError):
        return ERROR
    return add(expression) if isinstance(expression, str) else ERROR


def next_messages(
    text: str, tool_calls: Sequence[tuple[str, str]], finish_reason: str
) -> list[dict[str, Any]]:
    """What the environment says to an answer; nothing when the answer ends the game.

    Args:
        text: the answer's text.
        tool_calls: (id, JSON arguments) of its tool calls.
        finish_reason: ``length`` marks a truncated answer, which is told so and counts as a turn.
    """
    if tool_calls and finish_reason != FinishReason.LENGTH:
        return [
            {"role": "tool", "tool_call_id": call_id, "content": answer_tool_call(arguments)}
            for call_id, arguments in tool_calls
        ]
    if finish_reason == FinishReason.LENGTH or "<tool_call>" in text or "</tool_call>" in text:
        return [{"role": "user", "content": ERROR}]
    return []


def score(task: Task, said: EpisodeTrace | Sequence[dict[str, Any]]) -> float:
    """1.0 when the last thing said is the right sum as plain text, else 0.0. Pure.

    A trace must also show a complete last answer within ``MAX_TURNS`` calls.

    Raises:
        ValueError: the trace is of another task.
    """
    if isinstance(said, EpisodeTrace):
        if said.task_id != task.task_id:
            msg = f"the trace is of task {said.task_id!r}, not of {task.task_id!r}"
            raise ValueError(msg)
        complete = bool(said.calls) and said.calls[-1].finish_reason == FinishReason.STOP
        last = said.calls[-1].reply if complete and len(said.calls) <= MAX_TURNS else {}
    else:
        last = said[-1] if said else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return 0.0
    return float(str(last.get("content") or "").strip() == str(task.payload["answer"]))


# --- agents ----------------------------------------------------------------------------------------------------

Scored = tuple[float, dict[str, float]]


async def run_agent(episode: AsyncEpisode, task: Task) -> Scored:
    """Play one game on the light path; returns the reward and ``turns``, ``tool_calls``, ``errors``."""
    messages = question(task)
    game = {"turns": 0.0, "tool_calls": 0.0, "errors": 0.0}
    for _ in range(MAX_TURNS):
        answer = await episode.chat(messages, tools=TOOLS)
        messages.append(answer.message)
        if not _go_on(messages, answer.text, _calls_of(answer), answer.finish_reason, game):
            break
    return score(task, messages), game


async def run_agent_openai(episode: AsyncEpisode, task: Task) -> Scored:
    """The same game through the OpenAI SDK, as any agent would be written."""
    client = episode.async_openai()
    messages: list[Any] = question(task)
    game = {"turns": 0.0, "tool_calls": 0.0, "errors": 0.0}
    for _ in range(MAX_TURNS):
        completion = await client.chat.completions.create(
            model="policy",
            messages=messages,
            tools=TOOLS,  # pyright: ignore[reportArgumentType] - plain dicts
        )
        choice = completion.choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        calls = [
            (call.id, call.function.arguments)
            for call in choice.message.tool_calls or []
            if call.type == "function"
        ]
        if not _go_on(messages, choice.message.content or "", calls, choice.finish_reason, game):
            break
    return score(task, messages), game


def _calls_of(answer: ChatResult) -> list[tuple[str, str]]:
    return [(str(c.get("id")), str(c["function"]["arguments"])) for c in answer.tool_calls]


def _go_on(
    messages: list[dict[str, Any]],
    text: str,
    calls: list[tuple[str, str]],
    finish_reason: Literal["stop", "length", "tool_calls"] | str,
    game: dict[str, float],
) -> bool:
    """Append what the environment says and count it; False when the game is over."""
    said = next_messages(text, calls, finish_reason)
    messages.extend(said)
    game["turns"] += 1
    game["tool_calls"] += len(calls)
    game["errors"] += sum(m["content"] == ERROR for m in said)
    return bool(said)
