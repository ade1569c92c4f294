"""A client that behaves as badly as its arguments say, and still plays the calculator's episodes.

``escape``: before training it leaves processes that want to outlive it. ``deaf``: it ignores SIGTERM. ``spam_mb``: it writes
so much to its log. ``pause_s``: it thinks so long in each episode, which makes an attempt last.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from swarm.client import AsyncEpisode, AsyncSwarmClient, Task, run_episodes_async
from swarm.tasks.calculator import CalculatorTasks, held_out
from swarm.tasks.calculator import run_agent as play

SPEC = json.loads(Path(sys.argv[1]).read_text())
ARGUMENTS: dict[str, Any] = SPEC["arguments"]
TOKEN = Path(SPEC["token_file"]).read_text().strip()
LINE = b"all work and no play \xff\xfe\r" * 40 + b"\n"
STAY = (
    "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(3600)"
)


def escape(mark: str) -> None:
    """Three ways out of a session, a process tree and an environment."""
    argv = [sys.executable, "-I", "-S", "-c", STAY, mark]
    if os.fork() == 0:  # a child that ignores every polite signal
        os.execve(argv[0], argv, dict(os.environ))  # noqa: S606
    if os.fork() == 0:  # in a session of its own, without our environment
        os.setsid()
        os.execve(argv[0], argv, {})  # noqa: S606
    pid = os.fork()
    if pid == 0:  # the old daemon's way: its parent ends at once
        os.setsid()
        if os.fork() == 0:
            os.execve(argv[0], argv, {})  # noqa: S606
        os._exit(0)
    os.waitpid(pid, 0)


def spam(megabytes: int) -> None:
    """Bytes that are no text, with carriage returns."""
    block = LINE * (2**20 // len(LINE))
    for _ in range(megabytes):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def read(key: str) -> Any:
    """The JSON file that the spec names."""
    return json.loads(Path(SPEC[key]).read_text())


def write(rows: list[dict[str, Any]]) -> None:
    """Which episode belongs to which item."""
    Path(SPEC["out_file"]).write_text(json.dumps(rows))


async def run_agent(episode: AsyncEpisode, task: Task) -> tuple[float, dict[str, Any]]:
    """Play; a toy engine never earns a reward, and equal rewards move no weights."""
    await asyncio.sleep(float(ARGUMENTS.get("pause_s", 0.0)))
    reward, metrics = await play(episode, task)
    return reward + episode.grant.repeat_index, metrics


async def train(client: AsyncSwarmClient) -> None:
    """Whatever the open step needs."""
    problems = CalculatorTasks(
        seed=SPEC["seed"],
        exclude=held_out(ARGUMENTS["held_out_items"], ARGUMENTS["held_out_seed"]),
    )
    await run_episodes_async(
        problems, run_agent, client=client, data_seed=SPEC["seed"], parallel=ARGUMENTS["parallel"]
    )


async def evaluate(client: AsyncSwarmClient) -> None:
    """Every held-out item once."""

    async def one(item: dict[str, Any]) -> dict[str, Any]:
        name = item["item_id"]
        async with client.episode(name, task_set="eval", kind="eval", step=SPEC["step"]) as episode:
            await play(episode, Task(name, {**item["payload"], "answer": -1}))
        return {"item_id": name, "episode_id": episode.id, "error": ""}

    write(await asyncio.gather(*(one(item) for item in read("items_file"))))


async def main() -> None:
    """Misbehave, then work."""
    async with AsyncSwarmClient(SPEC["url"], TOKEN, client_id=f"client-{SPEC['mode']}") as client:
        await (train if SPEC["mode"] == "train" else evaluate)(client)


if ARGUMENTS.get("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if ARGUMENTS.get("escape"):
    escape(ARGUMENTS["escape"])
if SPEC["mode"] == "train":
    spam(int(ARGUMENTS.get("spam_mb", 0)))
asyncio.run(main())
