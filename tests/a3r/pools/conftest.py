"""A campaign whose runs wait, a pool with an engine in memory, and the keeper that looks after it, on a clock that the test moves."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from a3r.blueprints.model import Blueprint, Resources
from a3r.core.pools import PoolKind, PoolOptions
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.core.wire import WorkerRegistration
from a3r.pools.keeper import PoolKeeper
from a3r.store.rows import AttemptRow, PoolJobRow, PoolRow
from a3r.store.store import Store
from a3r.testing.fake_engine import FakeEngine
from a3r.testing.stored import PLAN, blueprint

LEASE_S = 10.0


@dataclass
class HandClock:
    now: float = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Cluster:
    """What a test of pools drives."""

    store: Store
    clock: HandClock
    engine: FakeEngine = field(default_factory=FakeEngine)
    heard: dict[str, float] = field(default_factory=dict[str, float])
    keeper: PoolKeeper = field(init=False)
    campaign_id: str = ""

    def __post_init__(self) -> None:
        self.keeper = PoolKeeper(
            self.store, self.clock, lambda _: self.engine, self.heard, lambda: "http://hub"
        )

    def pool(self, name: str = "p", **options: object) -> PoolRow:
        body = PoolOptions.model_validate({"max_workers": 3, **options})
        return self.store.add_pool(name, PoolKind.LOCAL, body, self.clock.now)

    def wait_with(self, count: int, *, level: int = 1, gpus: int = 0) -> list[str]:
        """Queue so many attempts of one blueprint; the ids of the attempts."""
        seeds = tuple(range(count))
        made: Blueprint = blueprint(level, seeds).model_copy(
            update={"name": f"b{level}", "resources": Resources(gpus=gpus)}
        )
        stage = self.store.add_stage(
            self.campaign_id, "coarse", {**PLAN, "at": level}, [(made, "a" * 64)], self.clock.now
        )
        row = self.store.blueprints(self.campaign_id, stage.id)[0]
        self.store.review(
            row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "", self.clock.now
        )
        self.store.ensure_runs(row.id)
        runs = [r for r in self.store.runs(self.campaign_id) if r.blueprint_id == row.id]
        return [self.store.queue_attempt(run.id, self.clock.now).id for run in runs]

    def look(self, later_s: float = 5.0) -> None:
        self.clock.now += later_s
        self.keeper.tend()

    def jobs(self, name: str = "p", *, live: bool = False) -> list[PoolJobRow]:
        return self.store.pool_jobs(name, live=live)

    def come(self, job: PoolJobRow, *, gpus: int = 0, slots: int = 1) -> str:
        """The job's worker comes to the hub; its id."""
        worker = f"w-{job.id}"
        request = WorkerRegistration(worker_id=worker, host="node", pid=1, slots=slots)
        self.store.upsert_worker(
            worker, request.host, 1, slots, {"gpus": [{}] * gpus}, self.clock.now
        )
        self.store.join_pool(job.id, worker)
        self.heard[worker] = self.clock.now
        return worker

    def claim(self, worker: str) -> AttemptRow:
        found = self.store.claim_attempt(worker, self.clock.now, LEASE_S)
        assert found is not None
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    clock = HandClock()
    with Store.open(tmp_path / "a3r.db", clock) as store:
        made = Cluster(store, clock)
        row = store.create_campaign(
            "Study", "# goal", "/g", {"capacity": 100}, ReviewMode.STAGE, "sweep", clock.now
        )
        made.campaign_id = row.id
        store.set_campaign_state(row.id, CampaignState.RUNNING)
        yield made
