from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from a3r.core.llm import LanguageModel
from a3r.core.types import ReviewMode
from a3r.core.workspace import Workspace
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.handlers import leader_handlers
from a3r.leader.jobs import JobRunner
from a3r.leader.reconcile import reconcile
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker, Truth

GOAL = """---
name: a small question
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2, 4, 8]}
metric: {name: held_out_reward, direction: maximize, items: 20}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 2e-3, group_size: 4, steps: 2}
seeds: {coarse: 2, refine: 2, replicate: 4, first: 1}
budget: {wall_clock_min: 20, max_stages: 8}
planner: llm
pilot: "none"
---
Prose.
"""


@dataclass
class Ticking:
    """A clock that moves a little with every look, and as far as it is told."""

    at: float = 1_800_000_000.0

    def time(self) -> float:
        self.at += 0.01
        return self.at

    def monotonic(self) -> float:
        return self.at


def at_least_four(factors, _seed) -> float:
    return 0.3 if factors["train_batch_size"] >= 4 else 0.0


@dataclass
class LlmRig:
    """A workspace with leader, job runner and a worker without processes."""

    folder: Path
    model: LanguageModel | None
    truth: Truth = at_least_four
    clock: Ticking = field(default_factory=Ticking)

    def __post_init__(self) -> None:
        self.workspace = Workspace.create(self.folder / ".a3r")
        self.store = Store.open(self.workspace.database, self.clock)
        self.worker = FakeWorker(self.store, self.clock, self.truth)
        self.runner = JobRunner(
            self.store, self.clock, self.workspace, self.model, leader_handlers()
        )

    def start(self, text: str, *, review: ReviewMode = ReviewMode.NONE) -> str:
        spec = parse_goal(text, self.folder / "goal.md")
        return self._filed(text, spec.name, spec.model_dump(mode="json"), review)

    def start_prose(self, text: str, *, review: ReviewMode = ReviewMode.NONE) -> str:
        return self._filed(text, "prose", {}, review)

    def _filed(self, text, name, spec, review) -> str:
        now = self.clock.time()
        folder = str(self.folder)
        return self.store.create_campaign(name, text, folder, spec, review, "llm", now).id

    def tick(self) -> bool:
        return reconcile(self.store, self.clock, self.workspace)

    def until_quiet(self, limit: int = 300) -> None:
        """Leader, jobs and worker in turn until none of them does anything."""
        for _ in range(limit):
            moved = [self.tick(), self.runner.run_one(), self.worker.work()]
            if not any(moved):
                return
        raise AssertionError("the campaign does not come to rest")

    def row(self, campaign: str):
        return self.store.campaign(campaign)

    def report(self, campaign: str) -> Path:
        return Path(self.row(campaign).report_path)


@pytest.fixture
def goal() -> str:
    return GOAL


@pytest.fixture
def new_rig(tmp_path) -> Callable[..., LlmRig]:
    made: list[LlmRig] = []

    def make(model: LanguageModel | None, **more) -> LlmRig:
        made.append(LlmRig(tmp_path / f"w{len(made)}", model, **more))
        return made[-1]

    yield make
    for rig in made:
        rig.store.close()
