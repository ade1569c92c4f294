"""A campaign whose attempts are played without processes, and the leader's jobs with a scripted model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from a3r.core.hashing import tree_hash
from a3r.core.types import CampaignState, FailureClass, ReviewMode
from a3r.core.workspace import Workspace
from a3r.leader.clients.handlers import client_handlers
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.jobs import JobRunner
from a3r.leader.reconcile import reconcile
from a3r.store.rows import AttemptRow
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker
from a3r.testing.scripted_model import ScriptedModel

CAMPAIGN = Path(__file__).parents[4] / "campaigns" / "broken-client"
LOG = b"""Traceback (most recent call last):
FileNotFoundError: [Errno 2] No such file or directory: 'data/order-1.json'
"""


@dataclass
class Ticking:
    at: float = 1_800_000_000.0

    def time(self) -> float:
        self.at += 0.01
        return self.at

    def monotonic(self) -> float:
        return self.at


class Picky(FakeWorker):
    """Plays what its ``refuses`` lets through; the rest fails as the broken client does."""

    broken: str = ""
    """Tree hash of the client that can not run."""
    reason: str = "client: it ended with exit code 1; FileNotFoundError"
    passes: frozenset[int] = frozenset()
    """Seeds with which the broken client gets through."""

    def finish(self, attempt: AttemptRow) -> None:
        run = self.store.run(attempt.run_id)
        own = self.store.blueprint(run.blueprint_id).blueprint.clients[0].tree_hash
        if attempt.revision or own != self.broken or run.seed in self.passes:
            super().finish(attempt)
            return
        self.store.add_log_chunk(attempt.id, attempt.fencing_token, "client", 0, LOG)
        self._end(attempt, "failed", self.failure, self.reason, {})


@dataclass
class Bench:
    """One campaign, its leader, its jobs, and a worker without processes."""

    folder: Path
    script: object
    review: ReviewMode = ReviewMode.NONE
    edits: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = Ticking()
        self.workspace = Workspace.create(self.folder / ".a3r")
        self.store = Store.open(self.workspace.database, self.clock)
        self.model = ScriptedModel(self.script)
        self.worker = Picky(self.store, self.clock, lambda _f, _s: 0.3, FailureClass.DATA_MISSING)
        self.goal_dir = self.folder / "goal"
        shutil.copytree(CAMPAIGN, self.goal_dir)
        self.worker.broken = tree_hash(self.goal_dir / "client")
        text = (self.goal_dir / "goal.md").read_text(encoding="utf-8")
        for old, new in self.edits.items():
            assert old in text
            text = text.replace(old, new)
        spec = parse_goal(text, self.goal_dir / "goal.md").model_dump(mode="json")
        self.id = self.store.create_campaign(
            "broken", text, str(self.goal_dir), spec, self.review, "sweep", self.clock.time()
        ).id

    def jobs(self) -> JobRunner:
        return JobRunner(self.store, self.clock, self.workspace, self.model, client_handlers())

    def until_quiet(self, limit: int = 200) -> None:
        """Leader, jobs and worker in turn until none of them does anything."""
        runner = self.jobs()
        runner.recover()
        for _ in range(limit):
            led = reconcile(self.store, self.clock, self.workspace)
            if not (runner.run_one() | self.worker.work() | led):
                return
        raise AssertionError("the campaign does not come to rest")

    @property
    def state(self) -> CampaignState:
        return self.store.campaign(self.id).state


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(script: object, **options: object) -> Bench:
        made.append(Bench(tmp_path, script, **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
