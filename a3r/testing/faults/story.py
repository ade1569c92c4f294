"""One SYNTHETIC training run as plain lists, simulated episode by episode so that its noise is that of real runs.

A fault edits the story; ``records`` turns it into what a campaign leaves behind.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from a3r.core.hashing import content_hash
from a3r.report.records import (
    AttemptRecord,
    BlueprintRecord,
    CampaignRecord,
    EvalRecord,
    ItemRecord,
    Records,
    RunRecord,
    StageRecord,
    StepRecord,
)

START = 1_760_000_000.0


@dataclass(frozen=True)
class Shape:
    """What a clean run looks like; ``start`` and ``end`` pairs are joined by a curve that saturates."""

    steps: int = 40
    tasks: int = 8
    repeat: int = 4
    items: int = 100
    success: tuple[float, float] = (0.3, 0.7)
    """Probability of reward 1, before and after training; the same for train and held-out items."""
    entropy: tuple[float, float] = (0.9, 0.4)
    kl: float = 0.05
    """At the end; it grows from 0."""
    tokens: tuple[float, float] = (60.0, 60.0)
    truncated: tuple[float, float] = (0.02, 0.02)
    gradient: float = 0.5
    """Median norm; single steps spread around it by a factor of about two."""
    policy: str = "C2"
    task_spread: float = 1.0
    """Of tasks' difficulty, in log-odds; larger means more groups with equal rewards."""


@dataclass
class Story:
    """A run that faults may edit: rows of steps by column name, rounds by name."""

    name: str
    shape: Shape
    rng: random.Random
    document: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    rounds: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    rewards: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Round -> reward of each item."""
    summary: dict[str, Any] = field(default_factory=dict[str, Any])
    copies: int = 0
    """Replicates of the cell that left the same weights under other seeds."""

    def late(self, share: float) -> list[dict[str, Any]]:
        """Rows of the steps after that share of the run; all of them at 0."""
        return self.steps[round(share * len(self.steps)) :]

    def score(self, name: str, success: float) -> None:
        """Play a round anew with this probability of success."""
        self.rewards[name] = [float(self.rng.random() < success) for _ in range(self.shape.items)]

    def train(self, step: dict[str, Any], success: float) -> None:
        """Sample a step's episodes anew: mean, spread and groups with equal rewards."""
        shape, rng = self.shape, self.rng
        groups = [_group(success, shape, rng) for _ in range(shape.tasks)]
        rewards = [r for group in groups for r in group]
        equal = sum(len(group) for group in groups if min(group) == max(group))
        step |= {
            "reward_mean": fmean(rewards),
            "reward_std": pstdev(rewards),
            "zero_advantage_share": equal / len(rewards),
            "updated": equal < len(rewards),
        }

    def stamp(self) -> None:
        """Give every step the weights that its updates lead to, and the final round those of the last step."""
        last, version = self.rounds["initial"]["fingerprint"], 0
        for step in self.steps:
            if step["updated"]:
                last, version = _digest(self.name, step["step"]), version + 1
            step |= {"fingerprint": last, "policy_version": version}
        self.rounds["final"] |= {"fingerprint": last, "policy_version": version}

    def records(self) -> Records:
        """A campaign of this run (and its copies)."""
        runs = [self._run(seed) for seed in range(1, 2 + self.copies)]
        plan = {"question": "Synthetic?"}
        document = {**self.document, "seeds": [r.seed for r in runs]}
        blueprint = BlueprintRecord(
            id="bp", stage_id="stage", name=self.name, version=1, review="approved", document=document,
            content_hash=content_hash(document), cell_hash="cell",
        )  # fmt: skip
        stage = StageRecord(
            id="stage", ordinal=1, kind="coarse", state="analysed", plan=plan,
            plan_hash=content_hash(plan), created_at=START,
        )  # fmt: skip
        return Records(
            campaign=CampaignRecord(
                id="faults", name="faults", ending="concluded", review_mode="none", planner="sweep",
                created_at=START, goal_text="SYNTHETIC\n", goal_spec={"metric": {"direction": "maximize"}},
            ),
            stages=(stage,),
            blueprints=(blueprint,),
            runs=tuple(runs),
            evals=tuple(self._round(r, name) for r in runs for name in self.rounds),
            steps=tuple(StepRecord.model_validate({"run_id": r.id, **s}) for r in runs for s in self.steps),
        )  # fmt: skip

    def _run(self, seed: int) -> RunRecord:
        run_id = f"run-{seed}"
        summary = {"seed": seed} if self.copies else self.summary
        attempt = AttemptRecord(
            id=f"at-{seed}", run_id=run_id, ordinal=1, state="succeeded", summary=summary
        )
        return RunRecord(
            id=run_id, blueprint_id="bp", seed=seed, state="succeeded",
            accepted_attempt=attempt.id, attempts=(attempt,),
        )  # fmt: skip

    def _round(self, run: RunRecord, name: str) -> EvalRecord:
        body: dict[str, Any] = {"attempt_id": f"at-{run.seed}", **self.rounds[name]}
        prefix = body.pop("prefix", "held-out")
        return EvalRecord(
            run_id=run.id,
            name=name,
            planned=len(self.rewards[name]),
            items=tuple(
                ItemRecord(
                    item_id=f"{prefix}-{n}", reward=reward, policy_version=body["policy_version"],
                    calls=1, truncated_calls=0,
                )
                for n, reward in enumerate(self.rewards[name])
            ),
            **body,
        )  # fmt: skip


def story(name: str, shape: Shape) -> Story:
    """Simulate a clean run; the same name and shape give the same run."""
    rng = random.Random(f"faults/{name}")  # noqa: S311 - not a secret
    made = Story(
        name=name, shape=shape, rng=rng, document=_document(name, shape), summary={"seed": 1}
    )
    for number in range(1, shape.steps + 1):
        made.steps.append(_step(made, number))
    base = made.document["servers"][0]["model_fingerprint"]
    seal = {"item_set_hash": "items", "evaluator_hash": "scorer"}
    made.rounds["initial"] = {"step": 0, "policy_version": 0, "fingerprint": base, **seal}
    made.rounds["final"] = {"step": shape.steps, **seal}
    made.score("initial", shape.success[0])
    made.score("final", shape.success[1])
    made.stamp()
    return made


def _document(name: str, shape: Shape) -> dict[str, Any]:
    batch = {"tasks": shape.tasks, "repeat": shape.repeat, "policy": shape.policy}
    train = {"stop_at_step": shape.steps, "engine": "torch", "batch": batch}
    train["asynchronous"] = {"enabled": False, "max_staleness": 1}
    return {
        "name": name,
        "factors": {"train_batch_size": shape.tasks},
        "servers": [{"train": train, "model_fingerprint": _digest("base", 0)}],
        "evaluator": {"items": shape.items, "item_set_hash": "items", "source_hash": "scorer"},
    }


def _step(made: Story, number: int) -> dict[str, Any]:
    shape, rng = made.shape, made.rng
    way = _way(number / shape.steps)
    noise = rng.lognormvariate
    step: dict[str, Any] = {
        "step": number,
        "groups": shape.tasks,
        "episodes": shape.tasks * shape.repeat,
        "entropy": _between(shape.entropy, way, geometric=True) * noise(0, 0.08),
        "kl": shape.kl * way * noise(0, 0.3),
        "grad_norm": shape.gradient * noise(0, 0.6),
        "loss": rng.gauss(0, 0.05),
        "logprob_gap_max": 0.02 * noise(0, 0.7),
        "response_tokens_mean": _between(shape.tokens, way, geometric=True) * noise(0, 0.06),
        "truncated_share": min(max(_between(shape.truncated, way) + rng.gauss(0, 0.02), 0.0), 1.0),
        "staleness_max": 0,
        "eval_overlap": 0,
        "members_missing": 0,
    }
    made.train(step, _between(shape.success, way))
    return step


def _way(share: float) -> float:
    """How far training has come at that share of its steps: fast at first, from 0 to 1."""
    return (1 - math.exp(-3 * share)) / (1 - math.exp(-3))


def _between(pair: tuple[float, float], way: float, *, geometric: bool = False) -> float:
    start, end = pair
    return start * (end / start) ** way if geometric else start + (end - start) * way


def _group(success: float, shape: Shape, rng: random.Random) -> list[float]:
    """Rewards of one group: its task is harder or easier than the mean by a draw in log-odds."""
    if not 0 < success < 1:
        return [success] * shape.repeat
    odds = math.log(success / (1 - success)) + rng.gauss(0, shape.task_spread)
    chance = 1 / (1 + math.exp(-odds))
    return [float(rng.random() < chance) for _ in range(shape.repeat)]


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
