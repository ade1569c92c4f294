"""A campaign whose only worker is on another host: its link is blocked for longer than every lease, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from a3r.hosts import far_end
from a3r.testing.sshd import Sshd, Wire, missing
from a3r.testing.waiting import retry_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing()), reason=f"needs {', '.join(missing())}"),
]

GOAL = """---
name: far away
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2]}
metric: {name: held_out_reward, direction: maximize, items: 10}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {group_size: 2, steps: 60, engine: toy}
seeds: {coarse: 1, refine: 1, replicate: 2, first: 1}
budget: {wall_clock_min: 30, max_stages: 1, max_runs: 4}
planner: sweep
review: none
---
Two runs on another host.
"""


@pytest.fixture
def folder():
    """Short, because a Unix socket lies in it; the worker that was left there is ended."""
    far = Path(tempfile.mkdtemp(prefix="a3r-", dir="/tmp"))
    yield far
    (far / "stopped").touch()
    far_end.end_worker(far, with_attempts=True, timeout_s=60)
    shutil.rmtree(far)


@pytest.fixture
def a3r(tmp_path):
    """The command in a workspace of its own without a local worker; its daemon is ended."""
    (tmp_path / "goal.md").write_text(GOAL, encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith("A3R_")}
    env |= {"A3R_HOME": str(tmp_path / ".a3r"), "A3R_SLOTS": "0", "OMP_NUM_THREADS": "1"}
    env |= {"A3R_LEASE_S": "3", "A3R_HEARTBEAT_S": "1", "A3R_LOST_AFTER_S": "300"}

    def run(*arguments, check=True):
        command = [sys.executable, "-c", "from a3r.cli import main; main()", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    yield run
    with suppress(subprocess.TimeoutExpired):
        run("daemon", "stop", check=False)


def test_a_blocked_link_loses_nothing_and_the_attempts_are_adopted(a3r, folder, tmp_path):
    (tmp_path / "ssh").mkdir()
    with Sshd(tmp_path / "ssh").running() as sshd:
        wire = Wire(sshd.port)
        sshd.reach(wire.port)
        way = ["--ssh-config", str(sshd.config), "--accept-key", sshd.fingerprint, "--name", "gpu1"]
        here = ["--folder", str(folder), "--python", sys.executable, "--slots", "1"]
        a3r("host", "add", "far", *way, *here, "--alive-s", "1")
        started = json.loads(a3r("campaign", "start", "goal.md", "--no-watch", "--json").stdout)
        campaign = started["campaign"]["id"]

        def runs():
            return json.loads(a3r("run", "list", campaign, "--json").stdout)["runs"]

        def under_way():
            return [r for r in runs() if r["attempt_state"] == "running" and (r["step"] or 0) > 0]

        live = retry_until(under_way, 90)[0]
        attach = a3r("run", "attach", live["id"])
        assert "attach-session" in attach.stdout
        assert str(sshd.config) in attach.stdout
        wire.block()
        retry_until(lambda: "unreachable" in {r["attempt_state"] for r in runs()}, 60)
        assert far_end.worker(folder)["alive"]
        wire.unblock()
        retry_until(lambda: all(r["state"] == "succeeded" for r in runs()), 180)
        assert {r["attempts"] for r in runs()} == {1}
        checked = a3r("host", "check", "gpu1", "--json", check=False)
        found = {c["name"]: c["state"] for c in json.loads(checked.stdout)["checks"]}
        assert found["debug episode"] == "ok"
        a3r("host", "remove", "gpu1")
        assert not far_end.worker(folder)["alive"]
        wire.close()
