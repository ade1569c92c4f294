"""The agent gets a sum and a calculator. It is asked once; the reward is whether it begins by adding the first two numbers.

Started as `python client.py SPEC.json`; see the skill `write-client`.
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

HERE = Path(__file__).parent
logger = logging.getLogger(__name__)
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Adds exactly two non-negative integers.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]


def question(operands: list[int]) -> list[dict[str, Any]]:
    """What the agent is asked."""
    expression = "+".join(str(n) for n in operands)
    return [
        {"role": "system", "content": "Use the tool to add two numbers."},
        {"role": "user", "content": f"Compute {expression}."},
    ]


def reward(operands: list[int], calls: list[dict[str, Any]]) -> float:
    """1 when the only call of the tool adds the first two operands, else 0."""
    if len(calls) != 1:
        return 0.0
    try:
        expression = json.loads(calls[0]["function"]["arguments"])["expression"]
    except (ValueError, KeyError, TypeError):
        return 0.0
    return float(expression == f"{operands[0]}+{operands[1]}")


async def play(episode: AsyncEpisode, operands: list[int]) -> list[dict[str, Any]]:
    """One question; the tool calls of its answer."""
    answer = await episode.chat(question(operands), tools=TOOLS)
    return list(answer.tool_calls)


async def run_agent(episode: AsyncEpisode, task: Task) -> float:
    """One training episode."""
    operands = task.payload["operands"]
    return reward(operands, await play(episode, operands))


def training_tasks() -> list[Task]:
    """The problems in `data/train.jsonl`."""
    lines = (HERE / "data" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [Task(row["id"], {"operands": row["operands"]}) for row in map(json.loads, lines)]


async def train(client: AsyncSwarmClient, spec: dict[str, Any]) -> None:
    """The server says which tasks it needs, and when training is complete."""
    summary = await run_episodes_async(
        training_tasks(),
        run_agent,
        client=client,
        task_set="tool-first",
        data_seed=spec["seed"],
        parallel=spec["arguments"]["parallel"],
    )
    logger.info("training ended: %s, %d episodes", summary.ended, summary.episodes)


async def evaluate(client: AsyncSwarmClient, spec: dict[str, Any]) -> None:
    """Play every held-out item once; say which episode belongs to which item. Scoring is not ours."""
    seats = asyncio.Semaphore(spec["arguments"]["parallel"])

    async def one(item: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {"item_id": item["item_id"], "episode_id": None, "reason": ""}
        async with seats:
            try:
                async with client.episode(
                    item["item_id"], task_set="eval", kind="eval", step=spec["step"]
                ) as episode:
                    await play(episode, item["payload"]["operands"])
                row["episode_id"] = episode.id
            except (SwarmError, TimeoutError) as error:
                row["reason"] = f"{type(error).__name__}: {error}"
        return row

    write_rows(spec, await asyncio.gather(*(one(item) for item in read_items(spec))))


def read_items(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The held-out problems, without answers."""
    return json.loads(Path(spec["items_file"]).read_text(encoding="utf-8"))


def write_rows(spec: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Which episode belongs to which item."""
    Path(spec["out_file"]).write_text(json.dumps(rows), encoding="utf-8")


def read_token(spec: dict[str, Any]) -> str:
    """The token of this mode."""
    return Path(spec["token_file"]).read_text(encoding="utf-8").strip()


async def run(spec: dict[str, Any]) -> None:
    """Connect under a stable name, so that a restarted client takes its predecessor's place."""
    name = f"client-{spec['mode']}"
    async with AsyncSwarmClient(spec["url"], read_token(spec), client_id=name) as client:
        await (train if spec["mode"] == "train" else evaluate)(client, spec)


def main() -> None:
    """Read the spec and run."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
