"""A small campaign in a fresh store, on a clock that the test moves."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a3r.blueprints.model import Blueprint, ClientSpec, EvaluatorSpec, Limits, ServerSpec
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.core.wire import EvalItem, EvalRound
from a3r.store.rows import AttemptRow, BlueprintRow, RunRow
from a3r.store.store import Store
from swarm.protocol.config import TrainConfig

LAST_STEP = 3
ITEMS = 2
SHA = "a" * 64


@dataclass
class HandClock:
    """A clock that stands still until it is moved."""

    now: float = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def a_blueprint(name: str = "b16", **changes: Any) -> Blueprint:
    fields: dict[str, Any] = {
        "name": name,
        "purpose": "see whether it trains",
        "factors": {"train_batch_size": 16},
        "servers": (ServerSpec(train=TrainConfig(stop_at_step=LAST_STEP)),),
        "clients": (ClientSpec(template="calculator", tree_hash="t" * 64),),
        "evaluator": EvaluatorSpec(
            task="calculator", items=ITEMS, item_set_hash="items", source_hash="scorer"
        ),
        "seeds": (1,),
        "limits": Limits(max_attempts=2),
    }
    return Blueprint(**{**fields, **changes})


def a_round(token: int, name: str, **changes: Any) -> EvalRound:
    step = 0 if name == "initial" else LAST_STEP
    item = {"reward": 0.5, "policy_version": step, "calls": 2, "truncated_calls": 0}
    fields: dict[str, Any] = {
        "fencing_token": token,
        "name": name,
        "step": step,
        "policy_version": step,
        "planned": ITEMS,
        "item_set_hash": "items",
        "evaluator_hash": "scorer",
        "fingerprint": "f" * 16,
        "items": [EvalItem(item_id=f"i{n}", **item) for n in range(ITEMS)],
    }
    return EvalRound(**{**fields, **changes})


@dataclass
class Study:
    """A running campaign that a test drives through the store's own verbs."""

    store: Store
    clock: HandClock
    campaign_id: str
    blueprint = staticmethod(a_blueprint)
    round = staticmethod(a_round)

    def add(self, blueprint: Blueprint, *, approve: bool = True) -> BlueprintRow:
        stage = self.store.add_stage(
            self.campaign_id, "coarse", {"question": "which?"}, [(blueprint, SHA)], self.clock.now
        )
        row = self.store.blueprints(self.campaign_id, stage.id)[0]
        if approve:
            verdict = ReviewStatus.APPROVED
            self.store.review(row.id, row.content_hash, verdict, "ada", "", self.clock.now)
        return row

    def runs(self, name: str = "b16", **changes: Any) -> list[RunRow]:
        return self.store.ensure_runs(self.add(a_blueprint(name, **changes)).id)

    def run(self, name: str = "b16", **changes: Any) -> RunRow:
        return self.runs(name, **changes)[0]

    def claimed(self, run: RunRow | None = None, worker: str = "w1") -> AttemptRow:
        """One attempt under way, its lease 10 s long."""
        self.store.queue_attempt((run or self.run()).id, self.clock.now)
        attempt = self.store.claim_attempt(worker, self.clock.now, 10.0)
        assert attempt is not None
        return attempt

    def prove(self, attempt: AttemptRow) -> None:
        """Send everything that a success needs."""
        token = attempt.fencing_token
        self.store.add_steps(attempt.id, token, [{"step": k} for k in range(1, LAST_STEP + 1)])
        self.store.add_eval_round(attempt.id, token, a_round(token, "initial"))
        self.store.add_eval_round(attempt.id, token, a_round(token, "final"))

    def finish(self, attempt: AttemptRow, outcome: Any = "succeeded") -> AttemptRow:
        token = attempt.fencing_token
        return self.store.finish_attempt(attempt.id, token, outcome, None, "", {}, self.clock.now)

    def lose(self, attempt: AttemptRow) -> AttemptRow:
        self.clock.now += 1000.0
        self.store.expire_leases(self.clock.now, 0.0)
        return self.store.mark_lost(attempt.id, "host gone", self.clock.now)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events(self.campaign_id)]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    with Store.open(tmp_path / "a3r.db", clock) as opened:
        yield opened


@pytest.fixture
def study(store: Store, clock: HandClock) -> Study:
    campaign = store.create_campaign(
        "Smallest batch",
        "# goal",
        "/goals",
        {"capacity": 3},
        ReviewMode.STAGE,
        "sweep",
        clock.now,
    )
    store.set_campaign_state(campaign.id, CampaignState.RUNNING)
    return Study(store, clock, campaign.id)
