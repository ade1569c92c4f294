"""A workspace with one campaign on a small grid, its leader and a worker without processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from a3r.core.types import ReviewMode
from a3r.core.workspace import Workspace
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.reconcile import reconcile
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker


@dataclass
class Ticking:
    """A clock that moves a second with every look, and as far as it is told."""

    at: float = 1_800_000_000.0

    def time(self) -> float:
        self.at += 0.01
        return self.at

    def monotonic(self) -> float:
        return self.at


@dataclass
class Rig:
    """A workspace with one campaign on a small grid, its leader and a worker without processes."""

    folder: Path
    goal_text: str
    review: ReviewMode = ReviewMode.NONE
    threshold: float = 4
    clock: Ticking = field(default_factory=Ticking)

    def __post_init__(self) -> None:
        self.workspace = Workspace.create(self.folder / ".a3r")
        self.store = Store.open(self.workspace.database, self.clock)
        self.worker = FakeWorker(self.store, self.clock, self.truth)

    def truth(self, factors, seed) -> float | None:
        return 0.3 if factors["train_batch_size"] >= self.threshold else 0.0

    def start(self, name: str = "study") -> str:
        spec = parse_goal(self.goal_text, self.folder / "goal.md")
        row = self.store.create_campaign(
            name,
            self.goal_text,
            str(self.folder),
            spec.model_dump(mode="json"),
            self.review,
            "sweep",
            self.clock.time(),
        )
        return row.id

    def tick(self, store: Store | None = None) -> bool:
        return reconcile(store or self.store, self.clock, self.workspace)

    def until_quiet(self, limit: int = 200) -> None:
        """Leader and worker in turn until neither does anything."""
        for _ in range(limit):
            led = self.tick()
            worked = self.worker.work()
            if not led and not worked:
                return
        raise AssertionError("the campaign does not come to rest")

    def until_analysed(self, campaign: str, stage: int = 1) -> None:
        """Leader and worker in turn until that stage is analysed."""
        for _ in range(200):
            self.tick()
            self.worker.work()
            stages = self.store.stages(campaign)
            if len(stages) >= stage and stages[stage - 1].state.value == "analysed":
                return
        raise AssertionError("the stage is not analysed")

    def row(self, campaign: str):
        return self.store.campaign(campaign)

    def close(self) -> None:
        self.store.close()
