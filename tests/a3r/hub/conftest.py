"""A hub in this process over a real store, on a clock that the test moves."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from a3r.blueprints.model import Blueprint, ClientSpec, EvaluatorSpec, ServerSpec
from a3r.core.errors import GoalError
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.core.wire import AttemptSpec, EvalItem, EvalRound
from a3r.hub.app import create_app
from a3r.hub.settings import HubSettings
from a3r.hub.state import Hooks, Hub, ReadGoal
from a3r.hub.tokens import HubTokens
from a3r.store.rows import RunRow
from a3r.store.store import Store
from swarm.protocol.config import TrainConfig

TOKENS = HubTokens(admin="admin-token", worker="worker-token")
LAST_STEP = 2


@dataclass
class HandClock:
    now: float = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Told:
    """What the hub called back for."""

    calls: list[str] = field(default_factory=list)

    def hooks(self) -> Hooks:
        return Hooks(
            read_goal=read_goal,
            on_change=lambda: self.calls.append("change"),
            on_shutdown=lambda: self.calls.append("shutdown"),
            leader_report=lambda: {"ticks": 7},
        )


def read_goal(text: str, folder: str) -> ReadGoal:
    if "metric" not in text:
        raise GoalError("line 1: there is no metric", hint="add a metric")
    return ReadGoal("tiny", {"capacity": 2, "folder": folder}, ReviewMode.STAGE, "sweep")


def a_blueprint(name: str) -> Blueprint:
    return Blueprint(
        name=name,
        purpose="see whether it trains",
        factors={"train_batch_size": 16},
        servers=(ServerSpec(train=TrainConfig(stop_at_step=LAST_STEP)),),
        clients=(ClientSpec(template="calculator", tree_hash="t" * 64),),
        evaluator=EvaluatorSpec(
            task="calculator", items=2, item_set_hash="items", source_hash="scorer"
        ),
        seeds=(1, 2),
    )


def a_round(token: int, name: str, reward: float | None) -> EvalRound:
    step = 0 if name == "initial" else LAST_STEP
    items = [
        EvalItem(item_id=f"i{n}", reward=reward, policy_version=step, calls=2, truncated_calls=0)
        for n in range(2)
    ]
    return EvalRound(
        fencing_token=token,
        name=name,
        step=step,
        policy_version=step,
        planned=2,
        item_set_hash="items",
        evaluator_hash="scorer",
        fingerprint="f" * 16,
        items=items,
    )


@dataclass
class Study:
    """A campaign with one approved blueprint of two runs, and both ends of the hub's HTTP."""

    store: Store
    clock: HandClock
    hub: Hub
    http: httpx.AsyncClient
    campaign_id: str

    async def api(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKENS.admin}"}
        return await self.http.request(method, f"/api/v1/{path}", json=body, headers=headers)

    async def worker(self, path: str, body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKENS.worker}"}
        return await self.http.post(f"/worker/v1/{path}", json=body, headers=headers)

    def runs(self) -> list[RunRow]:
        return self.store.runs(self.campaign_id)

    def queue(self, index: int = 0) -> None:
        self.store.queue_attempt(self.runs()[index].id, self.clock.now)

    async def claimed(self, index: int = 0) -> AttemptSpec:
        self.queue(index)
        reply = await self.worker("claim", {"worker_id": "w1", "free_slots": 1, "wait_s": 0})
        return AttemptSpec.model_validate(reply.json()["attempt"])

    async def proven(self, spec: AttemptSpec, gain: float = 0.25) -> None:
        """Send everything that a success needs."""
        token = spec.fencing_token
        steps = [{"step": k} for k in range(1, LAST_STEP + 1)]
        path = f"attempts/{spec.attempt_id}"
        await self.worker(f"{path}/steps", {"fencing_token": token, "steps": steps})
        for name, reward in (("initial", 0.5), ("final", 0.5 + gain)):
            body = a_round(token, name, reward).model_dump(mode="json")
            assert (await self.worker(f"{path}/evals", body)).status_code == 200


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    with Store.open(tmp_path / "a3r.db", clock) as opened:
        yield opened


@pytest.fixture
async def study(store: Store, clock: HandClock, told: Told, tmp_path: Path) -> AsyncIterator[Study]:
    settings = HubSettings(
        workspace=tmp_path, epoch="e1", started_at=clock.now, lease_s=10, lost_after_s=60
    )
    app = create_app(store, TOKENS, settings, told.hooks(), clock=clock)
    goal = {"capacity": 2}
    row = store.create_campaign("Study", "# goal", "/g", goal, ReviewMode.STAGE, "sweep", clock.now)
    plan = {"question": "which?"}
    sha = store.put_artifact(b"client folder")
    stage = store.add_stage(row.id, "coarse", plan, [(a_blueprint("b16"), sha)], clock.now)
    made = store.blueprints(row.id, stage.id)[0]
    store.review(made.id, made.content_hash, ReviewStatus.APPROVED, "ada", "", clock.now)
    store.ensure_runs(made.id)
    store.set_campaign_state(row.id, CampaignState.RUNNING)
    # A defect is answered like on the wire, not raised into the test.
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://hub") as http:
        yield Study(store, clock, app.state.hub, http, row.id)
    app.state.hub.close()
