"""Where the CPU seconds of one whole training run go: two evals of 300 items around 40 steps of B=16, N=4, through HTTP."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import write_result

from swarm.client import SwarmClient, run_episodes, run_eval
from swarm.tasks import calculator
from swarm.testing.server_process import server_process

CONFIG = {
    "run_name": "cpu-share",
    "sampling": {"max_response_tokens": 16},
    "optimizer": {"lr": 1e-3},
    "batch": {"tasks": 16, "repeat": 4},
    "stop_at_step": int(sys.argv[1]) if len(sys.argv) > 1 else 40,
}
ITEMS = 300
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system seconds of one process so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def child_of(pid: int) -> int:
    """The engine's process, the only child of the front."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return next(int(p) for t in tasks for p in (t / "children").read_text().split())


class Meter:
    """CPU of the three processes and wall, from mark to mark."""

    def __init__(self, front: int) -> None:
        self._pids = {"client": os.getpid(), "front": front, "engine": child_of(front)}
        self._last = self._now()

    def _now(self) -> dict[str, float]:
        return {name: cpu_s(pid) for name, pid in self._pids.items()} | {"wall": time.monotonic()}

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap."""
        before, self._last = self._last, self._now()
        return {name: round(value - before[name], 2) for name, value in self._last.items()}

    def total(self) -> float:
        """CPU seconds of all three since they started."""
        return sum(value for name, value in self._last.items() if name != "wall")


def measure(server_pid: int, client: SwarmClient) -> dict[str, Any]:
    """Eval, train, eval; CPU seconds of each part and each process."""
    client.configure(CONFIG)
    client.start()
    meter = Meter(server_pid)
    starting = meter.total()
    items = calculator.held_out(ITEMS)
    game = {"client": client, "parallel": 64}
    before = run_eval(items, calculator.run_agent, scorer=calculator.score, **game)
    first = meter.lap()
    tasks = calculator.CalculatorTasks(exclude=items)
    run = run_episodes(tasks, calculator.run_agent, task_set=calculator.TASK_SET, **game)
    training = meter.lap()
    after = run_eval(items, calculator.run_agent, scorer=calculator.score, **game)
    last = meter.lap()
    steps = client.metrics(0)
    total = meter.total()
    sampling = sum(m.sampling_cpu_s or 0.0 for m in steps)
    update = sum(m.update_cpu_s or 0.0 for m in steps)
    seconds = {
        "process_start": starting,
        "evals": sum(first[p] + last[p] for p in ("client", "front", "engine")),
        "train_sampling": sampling,
        "train_update": update,
        "train_engine_rest": training["engine"] - sampling - update,
        "train_front": training["front"],
        "train_client": training["client"],
    }
    return {
        "steps": len(steps),
        "episodes": run.finished,
        "reward_before_after": [before.mean, after.mean],
        "cpu_s": round(total, 1),
        "cpu_seconds": {name: round(value, 2) for name, value in seconds.items()},
        "cpu_shares": {name: round(value / total, 3) for name, value in seconds.items()},
        "eval_before": first,
        "training": training,
        "eval_after": last,
        "step_wall_s": {
            "rollout": round(sum(m.rollout_s for m in steps), 2),
            "drain": round(sum(m.drain_s for m in steps), 2),
            "update": round(sum(m.update_s for m in steps), 2),
        },
    }


def main() -> None:
    """Measure one run; give another number of steps as the argument."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder, "state")) as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        figures = measure(server.process.pid, client)
    write_result("cpu_share", "make bench", figures)


if __name__ == "__main__":
    main()
