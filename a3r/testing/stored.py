"""A small campaign in a real store, driven through the store's own verbs, for tests only."""

from __future__ import annotations

from typing import Any

from a3r.blueprints.model import Blueprint, ClientSpec, EvaluatorSpec, ServerSpec
from a3r.core.types import CampaignState, ReviewMode, ReviewStatus
from a3r.core.wire import EvalItem, EvalRound
from a3r.report.export import records_from_store
from a3r.report.records import Records
from a3r.store.rows import AttemptRow, BlueprintRow
from a3r.store.store import Store
from a3r.testing.records import synthetic_goal
from swarm.protocol.config import TrainConfig

STEPS, ITEMS = 2, 10
_EVALUATOR = {
    "task": "calculator",
    "items": ITEMS,
    "item_set_hash": "items",
    "source_hash": "scorer",
}
PLAN = {"question": "which?", "predictions": ["4"], "decision_table": [], "stop_rule": "done"}


def blueprint(
    level: int, seeds: tuple[int, ...], tree: str = "t" * 64, **evaluator: Any
) -> Blueprint:
    """One level of the synthetic question; ``tree`` is its client's hash."""
    return Blueprint(
        name=f"s1-b{level}",
        purpose="see",
        factors={"train_batch_size": level},
        servers=(ServerSpec(train=TrainConfig(stop_at_step=STEPS)),),
        clients=(ClientSpec(template="calculator", tree_hash=tree),),
        evaluator=EvaluatorSpec.model_validate({**_EVALUATOR, **evaluator}),
        seeds=seeds,
    )


def eval_round(token: int, name: str, right: int) -> EvalRound:
    """A complete round in which ``right`` of the items were solved."""
    version = 0 if name == "initial" else STEPS
    items = [
        EvalItem(
            item_id=f"i{n}",
            reward=float(n < right),
            policy_version=version,
            calls=2,
            truncated_calls=0,
        )
        for n in range(ITEMS)
    ]
    return EvalRound(
        fencing_token=token,
        name=name,
        step=version,
        policy_version=version,
        planned=ITEMS,
        item_set_hash="items",
        evaluator_hash="scorer",
        fingerprint="base" if version == 0 else "moved",
        items=items,
    )


class StoredCampaign:
    """A campaign that is driven through the store's own verbs; ``sha`` is its clients' artifact."""

    def __init__(self, store: Store, sha: str = "a" * 64) -> None:
        self.store, self.sha = store, sha
        spec = synthetic_goal((2, 4), (None,), items=ITEMS)
        row = store.create_campaign(
            "Study", "# goal\n", "/goals", spec, ReviewMode.STAGE, "sweep", 1000.0
        )
        self.id = row.id
        store.set_campaign_state(self.id, CampaignState.RUNNING)
        store.upsert_worker("w1", "box", 1, 2, {"cpus": 2, "host": "box"}, 1000.0)

    def stage(self, kind: str, cells: list[Blueprint]) -> list[BlueprintRow]:
        """Add a stage whose blueprints are approved."""
        stage = self.store.add_stage(self.id, kind, PLAN, [(b, self.sha) for b in cells], 1001.0)
        rows = self.store.blueprints(self.id, stage.id)
        for row in rows:
            self.store.review(row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "ok", 1002.0)
        return rows

    def attempt(self, run_id: str) -> AttemptRow:
        """Queue and claim an attempt."""
        self.store.queue_attempt(run_id, 1003.0)
        claimed = self.store.claim_attempt("w1", 1004.0, 60.0)
        assert claimed is not None
        return claimed

    def succeed(self, run_id: str, seed: int, right: int, **summary: Any) -> None:
        """A whole run; ``right`` of its final items are solved."""
        attempt = self.attempt(run_id)
        token = attempt.fencing_token
        steps = [{"step": k, "reward_mean": 0.1 * k, "loss": 9.0} for k in range(1, STEPS + 1)]
        self.store.add_steps(attempt.id, token, steps)
        self.store.add_eval_round(attempt.id, token, eval_round(token, "initial", 2))
        self.store.add_eval_round(attempt.id, token, eval_round(token, "final", right))
        report = {"seed": seed, **summary}
        self.store.finish_attempt(attempt.id, token, "succeeded", None, "", report, 1010.0)

    def records(self) -> Records:
        """What the store holds."""
        return records_from_store(self.store, self.id)
