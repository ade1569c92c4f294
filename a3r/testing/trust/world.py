"""A SYNTHETIC world for whole campaigns in milliseconds: the real planner asks, records in the product's form answer.

Only what a run measured is invented; planning, analysis and claims are the product's own. Nothing of the product imports this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from a3r.core.hashing import content_hash
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Conclusion, DesignRow, Pending, Planner, StagePlan
from a3r.report.records import (
    AttemptRecord,
    BlueprintRecord,
    CampaignRecord,
    EvalRecord,
    ItemRecord,
    Records,
    RunRecord,
    Scalar,
    StageRecord,
    StepRecord,
)

Truth: TypeAlias = Callable[[Mapping[str, Scalar], random.Random], float]
"""(factors of a cell, noise of this run) -> the gain that this run shows."""
START_REWARD = 0.3
MAX_STAGES = 60


@dataclass
class World:
    """Plays a goal to its conclusion; the same seed gives the same campaign."""

    goal: GoalSpec
    planner: Planner
    truth: Truth
    seed: int
    stages: list[StageRecord] = field(default_factory=list[StageRecord])
    blueprints: list[BlueprintRecord] = field(default_factory=list[BlueprintRecord])
    runs: list[RunRecord] = field(default_factory=list[RunRecord])
    evals: list[EvalRecord] = field(default_factory=list[EvalRecord])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])

    def play(self) -> Records:
        """Plan and run stages until the planner concludes; RuntimeError when it never does."""
        for _ in range(MAX_STAGES):
            records = self.records()
            outcome = self.planner.next(self.goal, records)
            if isinstance(outcome, Conclusion):
                return records
            if isinstance(outcome, Pending):
                msg = f"this planner waits: {outcome.detail}"
                raise RuntimeError(msg)  # noqa: TRY004 - nothing is of the wrong type
            self._stage(outcome)
        msg = f"no conclusion after {MAX_STAGES} stages"
        raise RuntimeError(msg)

    def records(self) -> Records:
        """Everything so far."""
        return Records(
            campaign=CampaignRecord(
                id="synthetic-aaaaaaaa",
                name=self.goal.name,
                ending="running",
                review_mode="none",
                planner=self.planner.name,
                created_at=0.0,
                goal_text="Synthetic.\n",
                goal_spec=self.goal.model_dump(mode="json"),
            ),
            stages=tuple(self.stages),
            blueprints=tuple(self.blueprints),
            runs=tuple(self.runs),
            evals=tuple(self.evals),
            steps=tuple(self.steps),
        )

    def _stage(self, plan: StagePlan) -> None:
        ordinal, document = len(self.stages) + 1, plan.model_dump(mode="json")
        stage = StageRecord(
            id=f"stage-{ordinal}",
            ordinal=ordinal,
            kind=plan.kind,
            state="analysed",
            plan=document,
            plan_hash=content_hash(document),
            created_at=float(ordinal),
        )
        self.stages.append(stage)
        for number, row in enumerate(plan.design):
            self._cell(stage, number, row)

    def _cell(self, stage: StageRecord, number: int, row: DesignRow) -> None:
        document: dict[str, Any] = {
            "name": f"{stage.id}-{number}",
            "factors": row.factors,
            "seeds": list(row.seeds),
            "servers": [{"name": "policy", "train": {"stop_at_step": 1}}],
            "evaluator": {
                "items": self.goal.metric.items,
                "item_set_hash": "items",
                "source_hash": "scorer",
            },
        }
        blueprint = BlueprintRecord(
            id=document["name"],
            stage_id=stage.id,
            name=document["name"],
            version=1,
            content_hash=content_hash(document),
            cell_hash=content_hash(row.factors),
            review="approved",
            document=document,
        )
        self.blueprints.append(blueprint)
        for seed in row.seeds:
            rng = random.Random(f"{self.seed}/{blueprint.cell_hash}/{seed}")  # noqa: S311
            self._run(blueprint, seed, self.truth(row.factors, rng))

    def _run(self, blueprint: BlueprintRecord, seed: int, gain: float) -> None:
        run_id = f"{blueprint.id}-{seed}"
        attempt = AttemptRecord(
            id=f"{run_id}.1", run_id=run_id, ordinal=1, state="succeeded", summary={"seed": seed}
        )
        self.runs.append(
            RunRecord(
                id=run_id,
                blueprint_id=blueprint.id,
                seed=seed,
                state="succeeded",
                accepted_attempt=attempt.id,
                attempts=(attempt,),
            )
        )
        self.steps.append(StepRecord(run_id=run_id, step=1, policy_version=1, updated=True))
        self.evals.append(self._round(attempt, "initial", 0, START_REWARD))
        self.evals.append(self._round(attempt, "final", 1, START_REWARD + gain))

    def _round(self, attempt: AttemptRecord, name: str, step: int, reward: float) -> EvalRecord:
        return EvalRecord(
            run_id=attempt.run_id,
            attempt_id=attempt.id,
            name=name,
            step=step,
            policy_version=step,
            planned=self.goal.metric.items,
            item_set_hash="items",
            evaluator_hash="scorer",
            fingerprint="base" if step == 0 else attempt.id,
            items=tuple(
                ItemRecord(
                    item_id=f"i{n}",
                    reward=reward,
                    policy_version=step,
                    calls=1,
                    truncated_calls=0,
                )
                for n in range(self.goal.metric.items)
            ),
        )
