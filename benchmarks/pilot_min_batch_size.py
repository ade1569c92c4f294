"""Pilot of campaigns/min_batch_size: which learning rate puts the threshold inside the grid.

Runs cells (batch, cap, seed) through the product: a real server process, HTTP, the calculator agent; evaluates version 0 and
the trained policy on the held-out items. Every run is appended to the output, none is dropped.

    python benchmarks/pilot_min_batch_size.py --lr 2e-3 --batches 8 16 --caps 10 16 --seeds 901 902 --out pilot.jsonl
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swarm.client import SwarmClient, run_episodes, run_eval
from swarm.tasks import calculator


def run_cell(
    lr: float, batch: int, cap: int, seed: int, steps: int, items: int
) -> dict[str, object]:
    """Train one cell and return its figures; the server is stopped afterwards."""
    config = {
        "run_name": f"pilot-b{batch}-cap{cap}-s{seed}",
        "seed": seed,
        "sampling": {"max_response_tokens": cap},
        "optimizer": {"lr": lr},
        "batch": {"tasks": batch, "repeat": 4},
        "stop_at_step": steps,
    }
    held_out = calculator.held_out(items)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready.json")
        command = [
            sys.executable,
            "-c",
            "from swarm.cli import main; main()",
            "serve",
            "--port",
            "0",
        ]
        command += ["--state-dir", folder + "/state", "--ready-file", str(ready)]
        with Path(folder, "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while not ready.exists():
                time.sleep(0.05)
            url = json.loads(ready.read_text())["url"]
            token = json.loads(Path(folder, "state", "tokens.json").read_text())["admin"]
            with SwarmClient(url, token) as client:
                client.configure(config)
                client.start()
                game = {"client": client, "parallel": 64}
                before = run_eval(held_out, calculator.run_agent, scorer=calculator.score, **game)
                tasks = calculator.CalculatorTasks(seed=seed, exclude=held_out)
                run_episodes(
                    tasks,
                    calculator.run_agent,
                    data_seed=seed,
                    task_set=calculator.TASK_SET,
                    **game,
                )
                after = run_eval(held_out, calculator.run_agent, scorer=calculator.score, **game)
        finally:
            server.terminate()
            server.wait(10)
    return {
        "lr": lr, "batch": batch, "cap": cap, "seed": seed, "steps": steps, "items": items, "before": before.mean, "after": after.mean,
        "missing": before.missing + after.missing, "wall_s": round(time.monotonic() - started, 1),
    }  # fmt: skip


def main() -> None:
    """Run every cell asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, nargs="+", default=[2e-3])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--caps", type=int, nargs="+", default=[10, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[901, 902])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for seed in args.seeds:
        for lr in args.lr:
            for batch in args.batches:
                for cap in args.caps:
                    row = run_cell(lr, batch, cap, seed, args.steps, args.items)
                    with args.out.open("a") as out:
                        out.write(json.dumps(row) + "\n")
                    print(row, flush=True)


if __name__ == "__main__":
    main()
