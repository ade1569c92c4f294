"""kill -9 of the leader at random moments of its work: nothing may be lost, nothing doubled, and the conclusions stay the same.

A real database, real leader processes, the real report at the end; workers are scripted and live through it, as real ones do.
Campaigns are run one after the other, each killed again and again until it is through, until there were enough kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a3r.core.clock import SystemClock
from a3r.core.types import CampaignState, ReviewMode, RunState
from a3r.core.workspace import Workspace
from a3r.leader.goal_parsing import parse_goal
from a3r.report.export import records_from_store
from a3r.report.render import claims_of
from a3r.report.verify import verify
from a3r.store.rows import AttemptRow
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker
from a3r.testing.trust.figure import Figure

KILLS = 50
PATIENCE_S = 120.0
GOAL = """---
name: a leader that is killed
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2, 4, 8]}
metric: {name: held_out_reward, items: 20}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 2e-3, group_size: 2, steps: 2}
seeds: {coarse: 2, refine: 2, replicate: 4}
budget: {max_stages: 8}
capacity: 3
planner: sweep
---
Synthetic.
"""


def truth(factors: dict[str, Any], _seed: int) -> float:
    """Levels from four on train."""
    return 0.3 if factors["train_batch_size"] >= 4 else 0.0


def kills_figure(scale: float = 1.0) -> Figure:
    """Kill until there were enough, audit every campaign, compare it with one that nobody disturbed."""
    wanted, rng = max(3, int(KILLS * scale)), random.Random("kills")  # noqa: S311
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="a3r-trust-") as scratch, _leaders() as leaders:
        calm = _campaign(Path(scratch) / "calm", leaders, rng, kills=0)
        kills = campaigns = 0
        while kills < wanted:
            campaigns += 1
            folder = Path(scratch) / f"killed-{campaigns}"
            found = _campaign(folder, leaders, rng, kills=wanted - kills, pace_s=calm.wall_s)
            kills += found.kills
            faults.update(found.faults)
            faults["other conclusions"] += found.claims != calm.claims
    faults.update(calm.faults)
    named = {what: count for what, count in faults.items() if count}
    text = ", ".join(f"{count} {what}" for what, count in named.items())
    return Figure(
        f"kill -9 of the leader at {wanted} random points",
        "0 lost, 0 doubled, same conclusions",
        text or "0 lost, 0 doubled, same conclusions",
        not named,
        f"{kills} kills in {campaigns} campaigns; every report verified against its database.",
    )


@dataclass
class _Outcome:
    kills: int = 0
    wall_s: float = 0.0
    claims: list[str] = field(default_factory=list[str])
    faults: Counter[str] = field(default_factory=Counter[str])


def _campaign(
    folder: Path, leaders: _Leaders, rng: random.Random, *, kills: int, pace_s: float = 0.0
) -> _Outcome:
    """Run one campaign to its end, with up to ``kills`` kills, each within a third of the time of an undisturbed campaign."""
    workspace, clock, out = Workspace.create(folder / ".a3r"), SystemClock(), _Outcome()
    with Store.open(workspace.database, clock) as store:
        spec = parse_goal(GOAL, folder / "goal.md").model_dump(mode="json")
        campaign = store.create_campaign(
            "killed", GOAL, str(folder), spec, ReviewMode.NONE, "sweep", clock.time()
        )
        worker, began = _Worker(store, rng), time.monotonic()
        while store.campaign(campaign.id).state is not CampaignState.DONE:
            leader = leaders.start(workspace)
            delay = rng.uniform(0, pace_s / 3) if out.kills < kills else PATIENCE_S
            worker.until(delay, lambda pid=leader: not _lives(pid))
            out.kills += leaders.end(leader)
            if time.monotonic() - began > PATIENCE_S * 3:
                out.faults["campaigns that did not end"] += 1
                return out
        out.wall_s = time.monotonic() - began
        worker.finish_all()
        _audit(store, workspace, campaign.id, out)
    return out


def _audit(store: Store, workspace: Workspace, campaign: str, out: _Outcome) -> None:
    records = records_from_store(store, campaign)
    out.claims = [claim.text for claim in claims_of(records)]
    cells = Counter((run.blueprint_id, run.seed) for run in records.runs)
    planned = {(b.id, seed) for b in records.blueprints for seed in b.seeds}
    out.faults["lost"] += len(planned - set(cells))
    out.faults["lost"] += sum(run.state != RunState.SUCCEEDED for run in records.runs)
    out.faults["doubled"] += sum(count - 1 for count in cells.values())
    out.faults["doubled"] += sum(len(run.attempts) - 1 for run in records.runs if run.attempts)
    stages = Counter((s.ordinal, s.kind) for s in records.stages)
    designs = Counter(b.content_hash for b in records.blueprints)
    out.faults["doubled"] += sum(c - 1 for c in [*stages.values(), *designs.values()])
    out.faults["doubled"] += len(records.decisions) - len(
        {(d.stage_id, d.what) for d in records.decisions}
    )
    reports = [p for p in (workspace.project / "reports").iterdir() if not p.name.startswith(".")]
    out.faults["reports too many or too few"] += len(reports) != 1
    out.faults["reports that do not verify"] += sum(not verify(p, store).ok for p in reports)


class _Worker:
    """Claims, holds for a while, finishes in any order."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._rng = rng
        self._fake = FakeWorker(store, SystemClock(), truth, lease_s=3600.0)
        self._held: list[AttemptRow] = []

    def until(self, delay_s: float, over: Any) -> None:
        """Work for so long, or until ``over()``."""
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline and not over():
            claimed = self._fake.hold() if len(self._held) < 3 else None
            if claimed is not None:
                self._held.append(claimed)
            elif self._held:
                self._finish_one()
            else:
                time.sleep(0.001)

    def finish_all(self) -> None:
        """Whatever is still held."""
        while self._held:
            self._finish_one()

    def _finish_one(self) -> None:
        self._fake.finish(self._held.pop(self._rng.randrange(len(self._held))))


class _Leaders:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, workspace: Workspace) -> int:
        """Pid of a fresh leader."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{workspace.root}\n")
        self._process.stdin.flush()
        return self._read()

    def end(self, pid: int) -> bool:
        """Kill it if it lives; whether the kill came before its own end. RuntimeError when it gave up."""
        if _lives(pid):
            os.kill(pid, signal.SIGKILL)
        code = self._read()
        if code not in (0, -signal.SIGKILL):
            msg = f"the leader ended with {code}"
            raise RuntimeError(msg)
        return code == -signal.SIGKILL

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def _leaders() -> Generator[_Leaders]:
    command = [sys.executable, "-m", "a3r.testing.trust.leader_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # everything is loaded
            yield _Leaders(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _lives(pid: int) -> bool:
    """Whether the leader still works. The process that forked it reaps it, so its pid vanishes soon after its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
