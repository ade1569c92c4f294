"""A swarm client for the calculator task, with a mistake that its debug episode does not show.

Training problems are played in a shuffled order, read from a file for each seed. Only the file of seed 0 was ever made, which
is the seed of debug episodes: the campaign's runs have other seeds and end before their first step.

Started as `python client.py SPEC.json`. Mode "train" plays the games that the server's open step
needs, until training is complete. Mode "eval" plays the held-out problems of items_file, which come
without answers, as episodes that never train, and writes which episode belongs to which item;
scoring them is not this program's business.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from swarm.client import AsyncEpisode, AsyncSwarmClient, Task, run_episodes_async
from swarm.protocol.errors import SwarmError
from swarm.tasks.calculator import CalculatorTasks, held_out

HERE = Path(__file__).parent
logger = logging.getLogger(__name__)

SYSTEM = "Use the tool to add two numbers."
MAX_TURNS = 5
MAX_DIGITS = 6
ERROR = "Error."
TOOLS = [
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


# --- environment ---------------------------------------------------------------------------------


def use_tool(arguments: str) -> str:
    """The calculator's answer: the sum of exactly two non-negative integers, else ERROR."""
    try:
        parts = str(json.loads(arguments)["expression"]).split("+")
    except (ValueError, KeyError, TypeError):
        return ERROR
    proper = [p for p in parts if p.isascii() and p.isdigit() and len(p) <= MAX_DIGITS]
    return str(int(proper[0]) + int(proper[1])) if len(parts) == len(proper) == 2 else ERROR


def _tool_message(call: dict[str, Any]) -> dict[str, Any]:
    content = use_tool(call["function"]["arguments"])
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def environment_says(answer: Any) -> list[dict[str, Any]]:
    """The messages that follow the model's answer; none when the game is over."""
    truncated = answer.finish_reason == "length"
    if answer.tool_calls and not truncated:
        return [_tool_message(call) for call in answer.tool_calls]
    if truncated or "<tool_call>" in answer.text or "</tool_call>" in answer.text:
        return [{"role": "user", "content": ERROR}]
    return []


# --- agent ---------------------------------------------------------------------------------------


async def play(episode: AsyncEpisode, operands: list[int]) -> tuple[str, dict[str, float]]:
    """Play one game; return the final answer (empty: none within the turns) and what happened."""
    expression = "+".join(str(n) for n in operands)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Compute {expression}."},
    ]
    counts = {"turns": 0.0, "tool_calls": 0.0, "errors": 0.0}
    for _ in range(MAX_TURNS):
        answer = await episode.chat(messages, tools=TOOLS)
        messages.append(answer.message)
        said = environment_says(answer)
        counts["turns"] += 1
        counts["tool_calls"] += len(answer.tool_calls)
        counts["errors"] += sum(m["content"] == ERROR for m in said)
        if not said:
            return answer.text.strip(), counts
        messages.extend(said)
    return "", counts


def reward(operands: list[int], final: str) -> float:
    """1 for the right sum as plain text, else 0."""
    return float(final == str(sum(operands)))


async def run_agent(episode: AsyncEpisode, task: Task) -> tuple[float, dict[str, float]]:
    """One training episode."""
    final, counts = await play(episode, task.payload["operands"])
    return reward(task.payload["operands"], final), counts


# --- data ----------------------------------------------------------------------------------------


def training_order(seed: int) -> list[int]:
    """Numbers of the training problems in the order in which they are played: 2048, shuffled once for each seed."""
    return json.loads((HERE / "data" / f"order-{seed}.json").read_text(encoding="utf-8"))


# --- modes ---------------------------------------------------------------------------------------


async def train(client: AsyncSwarmClient, spec: dict[str, Any]) -> None:
    """Play what the server needs until it is trained, never a problem of the held-out list."""
    arguments = spec["arguments"]
    unseen = held_out(arguments["held_out_items"], arguments["held_out_seed"])
    problems = CalculatorTasks(seed=spec["seed"], exclude=unseen)
    tasks = [problems[number] for number in training_order(spec["seed"])]
    summary = await run_episodes_async(
        tasks,
        run_agent,
        client=client,
        task_set="calculator",
        data_seed=spec["seed"],
        parallel=arguments["parallel"],
    )
    told = "training ended: %s, %d episodes, %d failed"
    logger.info(told, summary.ended, summary.episodes, summary.failed)


async def evaluate(client: AsyncSwarmClient, spec: dict[str, Any]) -> None:
    """Play every item once and write the episode of each; a failed item has a reason instead."""
    items = read_items(spec)
    seats = asyncio.Semaphore(spec["arguments"]["parallel"])
    step = spec.get("step")

    async def one(item: dict[str, Any]) -> dict[str, Any]:
        name, operands = item["item_id"], item["payload"]["operands"]
        row: dict[str, Any] = {"item_id": name, "episode_id": None, "reason": ""}
        async with seats:
            try:
                async with client.episode(name, task_set="eval", kind="eval", step=step) as episode:
                    await play(episode, operands)
                row["episode_id"] = episode.id
            except (SwarmError, TimeoutError) as error:
                row["reason"] = f"{type(error).__name__}: {error}"
        return row

    rows = await asyncio.gather(*(one(item) for item in items))
    out = Path(spec["out_file"])
    draft = out.with_name(out.name + ".part")
    draft.write_text(json.dumps({"step": step, "episodes": rows}), encoding="utf-8")
    draft.replace(out)


def read_items(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The held-out problems, without answers."""
    return json.loads(Path(spec["items_file"]).read_text(encoding="utf-8"))


def read_token(spec: dict[str, Any]) -> str:
    """The token of this mode: the file holds it bare, or as the server's table of tokens."""
    text = Path(spec["token_file"]).read_text(encoding="utf-8").strip()
    if not text.startswith("{"):
        return text
    return json.loads(text)["client" if spec["mode"] == "train" else "eval"]


async def run(spec: dict[str, Any]) -> None:
    """Connect under a stable name, so that a restarted client takes its predecessor's place."""
    name = f"client-{spec['mode']}"
    async with AsyncSwarmClient(spec["url"], read_token(spec), client_id=name) as client:
        await (train if spec["mode"] == "train" else evaluate)(client, spec)


def main() -> None:
    """Read the spec and run."""
    line = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=line)
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
