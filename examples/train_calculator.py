"""Train the built-in tiny model to use a calculator: the shortest true use of swarm.

Start a server first, then run this beside it (about a minute on one CPU core):

    swarm serve --port 8377
    python examples/train_calculator.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from swarm.client import SwarmClient, run_episodes, run_eval
from swarm.tasks import calculator

URL = os.environ.get("SWARM_URL", "http://127.0.0.1:8377")
TOKENS = Path(os.environ.get("SWARM_STATE_DIR", ".swarm")) / "tokens.json"

CONFIG = {
    "run_name": "calculator",
    "model": {"path": "builtin:tiny-calc"},
    "sampling": {"max_response_tokens": 16},
    "optimizer": {"lr": 7e-4},
    "batch": {"tasks": 16, "repeat": 4},
    "stop_at_step": 40,
}


def main() -> None:
    """Evaluate, train, evaluate again."""
    token = json.loads(TOKENS.read_text())["admin"]
    items = calculator.held_out(200)
    with SwarmClient(URL, token) as client:
        client.configure(CONFIG)
        client.start()
        game = {"client": client, "parallel": 64}
        before = run_eval(items, calculator.run_agent, scorer=calculator.score, **game)
        tasks = calculator.CalculatorTasks(exclude=items)
        run = run_episodes(tasks, calculator.run_agent, task_set=calculator.TASK_SET, **game)
        after = run_eval(items, calculator.run_agent, scorer=calculator.score, **game)
        print(f"{run.finished} episodes in {len(run.steps)} steps, {run.wall_s:.0f} s")
        print(f"held-out reward before {before.mean:.3f}, after {after.mean:.3f}")
        print(f"{after.planned} items, missing {before.missing} and {after.missing}")


if __name__ == "__main__":
    main()
