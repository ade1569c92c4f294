"""What one campaign leaves to the next: findings that are looked up, and results that are offered, never taken unasked."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.core.workspace import Workspace
from a3r.leader.findings import LOOK_UP
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.reconcile import reconcile
from a3r.leader.reuse import ACCEPT, OFFER
from a3r.report.verify import verify
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker

GOAL = """---
name: tiny
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2, 4]}
metric: {items: 20}
settings: {group_size: 2, steps: 2, learning_rate: 1e-3}
seeds: {coarse: 2, refine: 2, replicate: 3}
budget: {max_runs: 40}
constraints: [no tool calls]
pilot: a test
---
# tiny
"""


@dataclass
class Ticking:
    at: float = 1_800_000_000.0

    def time(self) -> float:
        self.at += 0.01
        return self.at

    def monotonic(self) -> float:
        return self.at


class Desk:
    """A workspace, its leader, and a worker without processes."""

    def __init__(self, folder: Path) -> None:
        self.clock = Ticking()
        self.workspace = Workspace.create(folder / ".a3r")
        self.store = Store.open(self.workspace.database, self.clock)
        self.worker = FakeWorker(self.store, self.clock, self.truth)

    def truth(self, factors: dict[str, Any], seed: int) -> float:
        return 0.3 if factors["train_batch_size"] >= 2 else 0.0

    def start(self, review: ReviewMode = ReviewMode.NONE) -> str:
        folder = self.workspace.project
        spec = parse_goal(GOAL, folder / "goal.md").model_dump(mode="json")
        return self.store.create_campaign(
            "tiny", GOAL, str(folder), spec, review, "sweep", self.clock.time()
        ).id

    def until_quiet(self) -> None:
        for _ in range(300):
            led = reconcile(self.store, self.clock, self.workspace)
            if not self.worker.work() and not led:
                return
        raise AssertionError("it does not come to rest")

    def approve(self, campaign: str) -> None:
        for row in self.store.blueprints(campaign):
            if row.review is ReviewStatus.PENDING:
                self.store.review(
                    row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "", self.clock.time()
                )

    def said(self, campaign: str, what: str) -> list[Any]:
        return [d for d in self.store.decisions(campaign) if d.what == what]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "w")
    yield made
    made.store.close()


def test_a_finished_campaign_leaves_findings_that_the_next_one_looks_up(desk: Desk):
    first = desk.start()
    desk.until_quiet()
    assert desk.said(first, LOOK_UP) == []
    filed = desk.store.findings(first)
    assert filed[0].subject.startswith("train_batch_size")
    assert (filed[0].data["kind"], filed[0].data["report"]) == ("minimum", f"reports/{first}")
    second = desk.start()
    desk.until_quiet()
    (looked,) = desk.said(second, LOOK_UP)
    assert filed[0].id in [f["id"] for f in looked.evidence["findings"]]
    row = desk.store.campaign(second)
    assert row.state is CampaignState.DONE
    assert verify(Path(str(row.report_path)), desk.store).level == "equal to the database"


def test_results_are_offered_and_run_again_unless_a_person_accepts(desk: Desk):
    desk.start()
    desk.until_quiet()
    second = desk.start()
    desk.until_quiet()
    (offered,) = desk.said(second, OFFER)[:1]
    assert len(offered.evidence["offers"]) == 4
    assert all(a.leased_at is not None for a in desk.store.attempts(second))


def test_accepted_results_are_taken_over_for_exploration_and_confirmed_afresh(desk: Desk):
    first = desk.start()
    desk.until_quiet()
    second = desk.start(ReviewMode.STAGE)
    desk.until_quiet()
    assert desk.store.campaign(second).state is CampaignState.AWAITING_REVIEW
    stage = desk.store.stages(second)[0]
    desk.store.add_decision(second, stage.id, ACCEPT, "ada accepts", {}, desk.clock.time())
    for _ in range(6):
        desk.approve(second)
        desk.until_quiet()
    row = desk.store.campaign(second)
    assert row.state is CampaignState.DONE
    attempts = {a.id: a for a in desk.store.attempts(second)}
    kinds = {s.id: s.kind for s in desk.store.stages(second)}
    stage_of = {b.id: kinds[b.stage_id] for b in desk.store.blueprints(second)}
    ran = [
        (stage_of[r.blueprint_id], attempts[str(r.accepted_attempt)].leased_at is not None)
        for r in desk.store.runs(second)
    ]
    assert [here for kind, here in ran if kind == "coarse"] == [False] * 4
    confirmed = [here for kind, here in ran if kind == "replicate"]
    assert confirmed
    assert all(confirmed)
    folder = Path(str(row.report_path))
    assert verify(folder, desk.store).level == "equal to the database"
    text = (folder / "report.md").read_text()
    assert "4 of" in text
    assert f"reused from {first}/" in text


def test_the_goals_settings_limits_and_demands_are_covered(desk: Desk):
    campaign = desk.start()
    desk.until_quiet()
    text = (Path(str(desk.store.campaign(campaign).report_path)) / "report.md").read_text()
    covered = text[text.index("## What the goal asked") : text.index("## Question")]
    assert "| setting steps = 2 | kept | in all" in covered
    assert "| setting learning_rate = 0.001 | kept | in all" in covered
    assert "| no tool calls | not checked |" in covered
    assert "| at most 40 planned runs | kept |" in covered
