"""SYNTHETIC records, for tests only: honest in form, invented in content. Nothing of the product imports this module.

``synthetic_records`` builds a whole campaign from a plan of cells; each run gets per-item rewards whose mean gain is close to
the cell's, so that analysis, report and verify meet what a real campaign leaves behind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from a3r.core.hashing import content_hash
from a3r.report.records import (
    AttemptRecord,
    BlueprintRecord,
    CampaignRecord,
    DecisionRecord,
    DeviationRecord,
    EvalRecord,
    EventRecord,
    ItemRecord,
    Records,
    RunRecord,
    Scalar,
    StageRecord,
    StepRecord,
)

START = 1_760_000_000.0
"""Unix seconds of the synthetic campaign's beginning."""


@dataclass(frozen=True)
class SyntheticCell:
    """One blueprint of a stage: ``gain`` is the true mean gain, ``outcomes`` overrides the outcome by seed."""

    condition: Scalar
    level: Scalar
    gain: float
    seeds: tuple[int, ...]
    outcomes: dict[int, str] = field(default_factory=dict[int, str])
    """Seed -> ``failed``, ``cancelled`` or ``pending``; absent = succeeded."""


@dataclass(frozen=True)
class SyntheticStage:
    """A stage of the plan."""

    kind: str
    cells: tuple[SyntheticCell, ...]


def synthetic_goal(
    levels: Sequence[Scalar] = (1, 2, 4, 8),
    conditions: Sequence[Scalar] = (10, 16),
    items: int = 40,
    **question: Any,
) -> dict[str, Any]:
    """A goal spec in the shape of ``a3r.leader.goal.GoalSpec``; one condition None asks without ``across``.

    ``question``: other keys of it, such as ``kind``; default a minimum.
    """
    compared = list(conditions) != [None]
    factors: dict[str, Any] = {"train_batch_size": {"levels": list(levels)}}
    if compared:
        factors["max_response_tokens"] = {"levels": list(conditions)}
    return {
        "name": "synthetic",
        "question": {
            "kind": "minimum",
            "factor": "train_batch_size",
            "across": "max_response_tokens" if compared else None,
            **question,
        },
        "task": "calculator",
        "model": "builtin:tiny-calc",
        "factors": factors,
        "metric": {"name": "held_out_reward", "direction": "maximize", "items": items},
        "criterion": {"min_gain": 0.05, "confidence": 0.95},
        "pilot": "Synthetic settings; there was no pilot.",
    }


def two_condition_stages() -> tuple[SyntheticStage, ...]:
    """Coarse, then fresh seeds: level 4 trains at 10 and at 16, level 2 does not."""
    coarse = tuple(
        SyntheticCell(c, level, 0.3 if level >= 4 else 0.0, (1, 2))
        for c in (10, 16)
        for level in (1, 2, 4, 8)
    )
    fresh = tuple(
        SyntheticCell(c, level, 0.3 if level >= 4 else 0.0, (3, 4, 5, 6))
        for c in (10, 16)
        for level in (2, 4)
    )
    return SyntheticStage("coarse", coarse), SyntheticStage("replicate", fresh)


def synthetic_records(
    stages: Sequence[SyntheticStage],
    goal: dict[str, Any] | None = None,
    *,
    steps: int = 5,
    review_mode: str = "none",
    spread: float = 0.02,
) -> Records:
    """Build the records of a finished campaign; the same arguments give the same records."""
    spec = goal or synthetic_goal()
    build = _Builder(spec, steps, spread)
    for ordinal, stage in enumerate(stages, start=1):
        build.stage(ordinal, stage)
    campaign = CampaignRecord(
        id="synthetic-aaaaaaaa",
        name=spec["name"],
        ending="concluded",
        review_mode=review_mode,
        planner="sweep",
        created_at=START,
        goal_text="# Synthetic goal\n\nInvented for a test.\n",
        goal_spec=spec,
        environment={"software": {"a3r": "0.0.0-synthetic"}},
    )
    return Records(
        campaign=campaign,
        stages=tuple(build.stages),
        blueprints=tuple(build.blueprints),
        runs=tuple(build.runs),
        evals=tuple(build.evals),
        steps=tuple(build.steps),
        decisions=tuple(build.decisions),
        deviations=tuple(build.deviations),
        events=(
            EventRecord(seq=1, at=START, actor="cli", kind="campaign_created", subject=campaign.id),
        ),
    )


def _text(level: Scalar) -> str:
    return f"{level:g}" if isinstance(level, int | float) else str(level)


class _Builder:
    def __init__(self, spec: dict[str, Any], stop_at_step: int, spread: float) -> None:
        self.spec, self.stop_at_step, self.spread = spec, stop_at_step, spread
        self.clock = START
        self.stages: list[StageRecord] = []
        self.blueprints: list[BlueprintRecord] = []
        self.runs: list[RunRecord] = []
        self.evals: list[EvalRecord] = []
        self.steps: list[StepRecord] = []
        self.decisions: list[DecisionRecord] = []
        self.deviations: list[DeviationRecord] = []

    def stage(self, ordinal: int, stage: SyntheticStage) -> None:
        plan = {
            "question": f"Synthetic question {ordinal}?",
            "predictions": ["Either way is invented."],
            "decision_table": [{"pattern": "any", "conclusion": "none", "next": "go on"}],
            "stop_rule": "The end of the test.",
            "attainable": {"alpha": 0.05, "family": 4, "n": 4, "smallest_gain": 0.04},
        }
        self.clock += 10
        stage_id = f"stage-{ordinal}"
        self.stages.append(
            StageRecord(
                id=stage_id,
                ordinal=ordinal,
                kind=stage.kind,
                state="analysed",
                plan=plan,
                plan_hash=content_hash(plan),
                created_at=self.clock,
            )
        )
        for cell in stage.cells:
            self._blueprint(stage_id, ordinal, cell)
        self.clock += 10
        self.decisions.append(
            DecisionRecord(
                stage_id=stage_id, what="next", why="invented", evidence={}, at=self.clock
            )
        )

    def _blueprint(self, stage_id: str, ordinal: int, cell: SyntheticCell) -> None:
        factors: dict[str, Scalar] = {"train_batch_size": cell.level}
        if cell.condition is not None:
            factors["max_response_tokens"] = cell.condition
        items = self.spec["metric"]["items"]
        document: dict[str, Any] = {
            "name": f"s{ordinal}-b{_text(cell.level)}-c{cell.condition}",
            "factors": factors,
            "seeds": list(cell.seeds),
            "servers": [{"name": "policy", "train": {"stop_at_step": self.stop_at_step}}],
            "evaluator": {"items": items, "item_set_hash": "items-hash", "source_hash": "scorer"},
        }
        blueprint = BlueprintRecord(
            id=f"bp-{ordinal}-{_text(cell.level)}-{cell.condition}",
            stage_id=stage_id,
            name=document["name"],
            version=1,
            content_hash=content_hash(document),
            cell_hash=content_hash(factors),
            review="pending",
            document=document,
        )
        self.blueprints.append(blueprint)
        for seed in cell.seeds:
            self._run(blueprint, cell, seed)

    def _run(self, blueprint: BlueprintRecord, cell: SyntheticCell, seed: int) -> None:
        run_id, state = f"run-{blueprint.id}-{seed}", cell.outcomes.get(seed, "succeeded")
        done = state == "succeeded"
        attempt = AttemptRecord(
            id=f"at-{run_id}",
            run_id=run_id,
            ordinal=1,
            state=state,
            failure="client_crash" if state == "failed" else None,
            reason="" if done else f"synthetic: {state}",
            worker="w1",
            started_at=self.clock + 1,
            finished_at=self.clock + 31,
            summary={"seed": seed} if done else {},
        )
        self.clock += 1
        self.runs.append(
            RunRecord(
                id=run_id,
                blueprint_id=blueprint.id,
                seed=seed,
                state=state,
                reason="" if done or state == "pending" else f"synthetic: {state}",
                accepted_attempt=attempt.id if done else None,
                attempts=() if state == "pending" else (attempt,),
            )
        )
        if done:
            self._measure(run_id, attempt.id, cell, seed)

    def _measure(self, run_id: str, attempt_id: str, cell: SyntheticCell, seed: int) -> None:
        rng = random.Random(f"synthetic/{run_id}/{seed}")  # noqa: S311 - not a secret
        items = self.spec["metric"]["items"]
        gain = cell.gain + rng.gauss(0, self.spread)
        start = round(0.3 * items)
        # Neighbouring seeds differ by an item at least: equal gains would leave a test without spread.
        end = min(items, max(0, start + round(gain * items) + seed % 3 - 1))
        for name, version, good in (("initial", 0, start), ("final", self.stop_at_step, end)):
            self.evals.append(
                EvalRecord(
                    run_id=run_id,
                    attempt_id=attempt_id,
                    name=name,
                    step=version,
                    policy_version=version,
                    planned=items,
                    item_set_hash="items-hash",
                    evaluator_hash="scorer",
                    fingerprint="base" if name == "initial" else f"fp-{run_id}",
                    items=tuple(_item(n, version, good=n < good) for n in range(items)),
                )
            )
        for step in range(1, self.stop_at_step + 1):
            self.steps.append(
                StepRecord(
                    run_id=run_id,
                    step=step,
                    policy_version=step,
                    updated=True,
                    episodes=4,
                    reward_mean=0.3 + gain * step / self.stop_at_step,
                    zero_advantage_share=rng.random(),
                    truncated_share=0.0,
                    response_tokens_mean=12.5,
                    fingerprint=f"{rng.getrandbits(64):016x}",
                )
            )


def _item(number: int, version: int, *, good: bool) -> ItemRecord:
    return ItemRecord(
        item_id=f"held-out-0-{number}",
        reward=1.0 if good else 0.0,
        policy_version=version,
        calls=3,
        truncated_calls=0,
    )
