"""A full tiny campaign through real processes: daemon, worker, swarm servers, tmux if there is one, report, verify.

One campaign is disturbed on its way: the daemon, the worker, a client and an engine are killed with SIGKILL. It must end all
the same, with every planned run in the results.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GOAL = """---
name: tiny study
question: {kind: minimum, factor: train_batch_size, across: max_response_tokens}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 4]}
  max_response_tokens: {levels: [10, 16]}
metric: {name: held_out_reward, direction: maximize, items: 20}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 1e-3, group_size: 4, steps: 4}
seeds: {coarse: 2, refine: 2, replicate: 2, first: 1}
budget: {wall_clock_min: 30, max_stages: 2, max_runs: 20}
capacity: 2
planner: sweep
---
A study small enough for a test.
"""


class Bench:
    """A workspace of its own and the `a3r` command in it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "goal.md").write_text(GOAL, encoding="utf-8")
        self.env = {**os.environ, "A3R_HOME": str(folder / ".a3r"), "OMP_NUM_THREADS": "1"}

    def a3r(self, *arguments, check=True, timeout=400):
        done = subprocess.run(
            [sys.executable, "-c", "from a3r.cli import main; main()", *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def json(self, *arguments):
        return json.loads(self.a3r(*arguments, "--json").stdout)

    def pids(self, marker):
        """Live processes of this workspace (or below one that is) whose command line holds ``marker``."""
        return [
            p for p in psutil.process_iter() if self._ours(p) and marker in " ".join(command(p))
        ]

    def _ours(self, process):
        chain = [process, *quietly(process.parents, [])]
        return any(str(self.folder) in " ".join(command(p)) for p in chain)


def quietly(action, otherwise):
    try:
        return action()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return otherwise


def command(process):
    return quietly(process.cmdline, [])


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "wörk space")
    yield made
    made.a3r("daemon", "stop", check=False)
    for marker in ("worker start", "supervisor.py", "swarm.cli serve", "engine.child", "client.py"):
        for process in made.pids(marker):
            quietly(process.kill, None)


def kill_one(bench, marker, deadline_s=60):
    """SIGKILL the first process that matches; fails when none shows up in time."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        for process in bench.pids(marker):
            process.kill()
            return
        time.sleep(0.2)
    pytest.fail(f"no process with {marker!r} within {deadline_s} s")


def check_report(bench, folder):
    runs = json.loads((folder / "records" / "runs.json").read_text(encoding="utf-8"))
    blueprints = json.loads((folder / "records" / "blueprints.json").read_text(encoding="utf-8"))
    assert len(runs) == sum(len(each["document"]["seeds"]) for each in blueprints) > 8, (
        "every planned run, both stages"
    )
    assert {run["state"] for run in runs} == {"succeeded"}
    verified = bench.a3r("campaign", "verify", str(folder))
    assert "verified" in verified.stdout + verified.stderr
    return runs


def test_a_campaign_that_is_killed_all_over_still_ends_with_every_run(bench):
    bench.a3r("campaign", "start", "goal.md", "--review", "none", "--no-watch")
    kill_one(bench, "client.py")
    kill_one(bench, "swarm.server.engine.child")
    kill_one(bench, "worker start")
    kill_one(bench, "a3r.cli.daemon")
    answer = bench.json("campaign", "watch", "tiny")
    folder = Path(answer["report"])
    folder = folder.parent if folder.name == "report.md" else folder
    check_report(bench, folder)
    lines = (folder / "records/events.jsonl").read_text(encoding="utf-8").splitlines()
    columns, *events = map(json.loads, lines)
    kinds = {event[columns.index("kind")] for event in events}
    assert any("restart" in kind for kind in kinds), sorted(kinds)

    copy = bench.folder / "copy of the report"
    shutil.copytree(folder, copy)
    text = (copy / "report.md").read_text(encoding="utf-8")
    digit = next(i for i, char in enumerate(text) if char in "12345678" and text[i - 2 : i] == "0.")
    (copy / "report.md").write_text(text[:digit] + "9" + text[digit + 1 :], encoding="utf-8")
    forged = bench.a3r("campaign", "verify", str(copy), check=False)
    assert forged.returncode == 5
    assert "report.md" in forged.stdout + forged.stderr
