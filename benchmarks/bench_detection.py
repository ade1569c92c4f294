"""From the SIGKILL of a client to the worker's record of it, in a real campaign (daemon, worker, supervisor, server)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import write_result

from a3r.store.store import Store

GOAL = """---
name: detection
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors: {train_batch_size: {levels: [2, 4]}}
metric: {name: held_out_reward, direction: maximize, items: 20}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 1e-3, group_size: 4, steps: 60, max_response_tokens: 16}
seeds: {coarse: 1, refine: 1, replicate: 2, first: 1}
budget: {wall_clock_min: 10, max_stages: 1, max_runs: 2}
capacity: 1
planner: sweep
---
One run whose client is killed.
"""
KILLS = 3


def a3r(folder: Path, *arguments: str) -> None:
    """Run the command in the workspace."""
    command = [sys.executable, "-m", "a3r", *arguments]
    env = {**os.environ, "A3R_HOME": str(folder / ".a3r"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)


def client_of(folder: Path, known: set[int]) -> psutil.Process:
    """The client's process, once there is one that was not killed before; gives up after a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            trains = "client/client.py" in line and "eval" not in line.rpartition("/")[2]
            if trains and str(folder) in line and process.pid not in known:
                return process
        time.sleep(0.1)
    raise SystemExit("bench_detection: no client process appeared within 60 s")


def exits(folder: Path) -> list[float]:
    """Times of the worker's records that a client ended."""
    with Store.open(folder / ".a3r" / "a3r.db") as store:
        campaign = store.campaigns()[0]
        events = store.events(campaign.id, 0, 100_000)
    return [e.at for e in events if e.kind == "process_exited" and e.actor == "client"]


def main() -> None:
    """Kill the client a few times and read when the worker knew."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "goal.md").write_text(GOAL)
        a3r(folder, "campaign", "start", "goal.md", "--review", "none", "--no-watch")
        known: set[int] = set()
        try:
            for index in range(KILLS):
                process = client_of(folder, known)
                known.add(process.pid)
                time.sleep(2.0)
                killed = time.time()
                process.kill()
                until = time.monotonic() + 30
                while len(exits(folder)) <= index and time.monotonic() < until:
                    time.sleep(0.2)
                found.append(exits(folder)[index] - killed)
        finally:
            a3r(folder, "campaign", "stop", "detection")
            time.sleep(3)
            a3r(folder, "daemon", "stop")
            for process in psutil.process_iter(["cmdline"]):
                line = " ".join(process.info["cmdline"] or [])
                if str(folder) in line and "worker" in line:
                    process.terminate()
    write_result(
        "detection",
        "make bench",
        {"kills": KILLS, "seconds": [round(s, 2) for s in found], "worst_s": round(max(found), 2)},
    )


if __name__ == "__main__":
    main()
