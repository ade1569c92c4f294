"""A small swarm client for the tests of the worker; ``arguments`` make it misbehave."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from swarm.client import AsyncSwarmClient, Task, run_episodes_async
from swarm.tasks.calculator import CalculatorTasks, held_out, run_agent

SPEC = json.loads(Path(sys.argv[1]).read_text())
ARGUMENTS = SPEC["arguments"]
TOKEN = Path(SPEC["token_file"]).read_text().strip()
TOKENS = {n: Path(s["token_file"]).read_text().strip() for n, s in SPEC["servers"].items()}
HERE = Path(os.environ.get("A3R_WORK", Path(__file__).parent.parent))


def misbehave(step):
    """``trouble``: step -> what goes wrong there, once, or each time with ``always``."""
    how = ARGUMENTS.get("trouble", {}).get(str(step))
    mark = HERE / f"misbehaved.{step}"
    if how is None or (mark.exists() and not ARGUMENTS.get("always")):
        return
    mark.touch()
    if how == "raise":
        raise RuntimeError("the client broke")
    if how == "leave":
        sys.exit(0)
    if how == "import":
        import no_such_module_anywhere  # noqa: F401
    if how == "hang":
        time.sleep(600)


def sound_like_verl(step):
    """``verl``: what such a trainer prints."""
    if ARGUMENTS.get("verl"):
        loss = "nan" if step == 1 else "0.25"
        print(f"step:{step + 1} - actor/pg_loss:{loss} - critic/score/mean:0.5", flush=True)  # noqa: T201


def on_step(step):
    sound_like_verl(step)
    misbehave(step)


async def run_slow(episode, task):
    await asyncio.sleep(ARGUMENTS.get("pause_s", 0.0))
    reward, metrics = await run_agent(episode, task)
    # The toy engine's random words never earn anything, and equal rewards move no weights.
    return reward + episode.grant.repeat_index, metrics


async def train(client):
    await run_episodes_async(
        CalculatorTasks(seed=SPEC["seed"], exclude=held_out(ARGUMENTS.get("held_out_items", 4))),
        run_slow,
        client=client,
        data_seed=SPEC["seed"],
        on_step=on_step,
    )


async def evaluate(client):
    async def one(item):
        if item["item_id"] in ARGUMENTS.get("skip", []):
            return {"item_id": item["item_id"], "episode_id": None, "error": "skipped"}
        async with client.episode(
            item["item_id"], task_set="eval", kind="eval", step=SPEC["step"]
        ) as episode:
            await run_agent(episode, Task(item["item_id"], {**item["payload"], "answer": -1}))
        return {"item_id": item["item_id"], "episode_id": episode.id, "error": ""}

    items = read_items()
    assert all("answer" not in json.dumps(item) for item in items)
    write_rows(await asyncio.gather(*(one(item) for item in items)))


def read_items():
    return json.loads(Path(SPEC["items_file"]).read_text())


def write_rows(rows):
    Path(SPEC["out_file"]).write_text(json.dumps(rows))


def note(name, value):
    (HERE / name).write_text(json.dumps(value))


async def look_around():
    """``peek``: the step of each server of the attempt, with the token that we were given for it."""
    seen = {}
    for name, server in SPEC["servers"].items():
        token = TOKENS[name]
        async with AsyncSwarmClient(server["url"], token, client_id=f"peek-{name}") as client:
            seen[name] = (await client.status()).step
    note(f"peek-{SPEC['mode']}.json", seen)


def pry():
    """``pry``: what we can read of the evaluator, and of what lies beside it."""
    beside = Path(SPEC["token_file"]).parent
    found = [str(p.relative_to(beside)) for p in beside.rglob("*")] if beside.exists() else []
    note(f"pry-{SPEC['mode']}.json", found)


async def main():
    if ARGUMENTS.get("pry"):
        pry()
    if ARGUMENTS.get("peek"):
        await look_around()
    async with AsyncSwarmClient(SPEC["url"], TOKEN, client_id=f"client-{SPEC['mode']}") as client:
        await (train if SPEC["mode"] == "train" else evaluate)(client)


asyncio.run(main())
