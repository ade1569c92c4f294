"""A small swarm client for the tests of the worker; ``arguments`` make it misbehave."""

import asyncio
import json
import os
import sys
from pathlib import Path

from swarm.client import AsyncSwarmClient, Task, run_episodes_async
from swarm.tasks.calculator import CalculatorTasks, held_out, run_agent

SPEC = json.loads(Path(sys.argv[1]).read_text())
ARGUMENTS = SPEC["arguments"]
ONCE = Path(__file__).parent.parent / "misbehaved"


def misbehave(step):
    """At ``crash_at``: once, or always with ``always``."""
    if step != ARGUMENTS.get("crash_at") or (ONCE.exists() and not ARGUMENTS.get("always")):
        return
    ONCE.touch()
    how = ARGUMENTS.get("how", "raise")
    if how == "raise":
        raise RuntimeError("the client broke")
    if how == "leave":
        sys.exit(0)
    if how == "import":
        import no_such_module_anywhere  # noqa: F401
    if how == "hang":
        import time

        time.sleep(600)
    os._exit(9)


async def run_slow(episode, task):
    await asyncio.sleep(ARGUMENTS.get("pause_s", 0.0))
    reward, metrics = await run_agent(episode, task)
    # With the toy engine's random words nobody ever earns anything; a length is as good as a sum.
    calls = [c for c in metrics.values()]
    return reward + sum(calls), metrics


async def train(client):
    await run_episodes_async(
        CalculatorTasks(seed=SPEC["seed"], exclude=held_out(ARGUMENTS.get("held_out_items", 4))),
        run_slow,
        client=client,
        data_seed=SPEC["seed"],
        on_step=misbehave,
    )


async def evaluate(client):
    async def one(item):
        if item["item_id"] in ARGUMENTS.get("skip", []):
            return {"item_id": item["item_id"], "episode_id": None, "error": "skipped"}
        async with client.episode(
            item["item_id"], task_set="eval", kind="eval", step=SPEC["step"]
        ) as episode:
            await run_agent(
                episode, Task(item["item_id"], {**item["payload"], "answer": -1})
            )
        return {"item_id": item["item_id"], "episode_id": episode.id, "error": ""}

    items = json.loads(Path(SPEC["items_file"]).read_text())
    assert all("answer" not in json.dumps(item) for item in items)
    rows = await asyncio.gather(*(one(item) for item in items))
    Path(SPEC["out_file"]).write_text(json.dumps(rows))


async def main():
    token = Path(SPEC["token_file"]).read_text().strip()
    async with AsyncSwarmClient(SPEC["url"], token, client_id=f"client-{SPEC['mode']}") as client:
        await (train if SPEC["mode"] == "train" else evaluate)(client)


asyncio.run(main())
