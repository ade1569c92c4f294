"""Train two models of different make in the same episodes: they take turns at one calculation, and both learn from it.

Start two servers first, each with a state folder of its own, then run this beside them (a few minutes on two CPU cores):

    swarm serve --port 8377 --state-dir .swarm-llama
    swarm serve --port 8378 --state-dir .swarm-qwen
    python examples/two_models.py
"""

from __future__ import annotations

import json
from pathlib import Path

from swarm.client import SwarmClient, SwarmGroup, run_episodes, run_eval
from swarm.tasks import calculator
from swarm.tasks.relay import run_relay

SERVERS = {
    "llama": ("http://127.0.0.1:8377", Path(".swarm-llama")),
    "qwen": ("http://127.0.0.1:8378", Path(".swarm-qwen")),
}
COMMON = {
    "optimizer": {"lr": 1e-3},
    "batch": {"tasks": 16, "repeat": 4},
    "stop_at_step": 15,
}
CONFIGS = {
    "llama": {
        **COMMON,
        "model": {"path": "builtin:tiny-calc"},
        "sampling": {"max_response_tokens": 16},
    },
    "qwen": {  # another layout, tokenizer, template and tool-call format; an algorithm of its own
        **COMMON,
        "model": {"path": "builtin:tiny-calc-qwen"},
        "sampling": {"max_response_tokens": 24},
        "algorithm": {"name": "rloo"},
    },
}


def client_of(url: str, state_dir: Path) -> SwarmClient:
    """A client with the admin token of a server on this machine."""
    return SwarmClient(url, json.loads((state_dir / "tokens.json").read_text())["admin"])


def main() -> None:
    """Evaluate the team, train both, evaluate again."""
    items = calculator.held_out(150)
    with SwarmGroup({name: client_of(*where) for name, where in SERVERS.items()}) as team:
        team.configure(CONFIGS)
        team.start()
        game = {"client": team, "parallel": 32}
        before = run_eval(items, run_relay, **game)
        tasks = calculator.CalculatorTasks(exclude=items)
        run = run_episodes(tasks, run_relay, task_set=calculator.TASK_SET, **game)
        after = run_eval(items, run_relay, **game)
        print(f"{run.finished} episodes in {len(run.steps)} steps, {run.wall_s:.0f} s")
        print(f"held-out reward of the team before {before.mean:.3f}, after {after.mean:.3f}")
        for name, steps in team.metrics().items():
            versions = len({step.fingerprint for step in steps})
            print(f"{name}: {versions} versions of its weights were served")


if __name__ == "__main__":
    main()
