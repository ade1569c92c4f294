"""A worker without processes: claims attempts from the store and sends complete SYNTHETIC results. For tests only."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from a3r.blueprints.model import Blueprint
from a3r.core.ports import Clock
from a3r.core.types import AttemptState, FailureClass
from a3r.core.wire import EvalItem, EvalRound
from a3r.store.rows import AttemptRow, BlueprintRow
from a3r.store.store import Store
from swarm.protocol.records import StepMetrics

Truth = Callable[[dict[str, Any], int], float | None]
"""(factors, seed) -> true gain; None = the attempt fails."""
START_SHARE = 0.3


@dataclass
class FakeWorker:
    """Plays one attempt a call of ``work``, from claim to finish."""

    store: Store
    clock: Clock
    truth: Truth
    failure: FailureClass = FailureClass.CLIENT_CRASH
    """Of attempts that fail."""
    spread: float = 0.01
    worker_id: str = "fake"
    lease_s: float = 30.0
    played: list[str] = field(default_factory=list[str])
    """Attempts in order of their claim."""

    def work(self) -> bool:
        """Claim and finish one attempt; False when there is none."""
        attempt = self.store.claim_attempt(self.worker_id, self.clock.time(), self.lease_s)
        if attempt is None:
            return False
        self.played.append(attempt.id)
        self.finish(attempt)
        return True

    def hold(self) -> AttemptRow | None:
        """Claim an attempt and leave it running."""
        attempt = self.store.claim_attempt(self.worker_id, self.clock.time(), self.lease_s)
        if attempt is None:
            return None
        return self.store.renew(
            attempt.id,
            attempt.fencing_token,
            AttemptState.RUNNING,
            1,
            "training",
            self.clock.time(),
            self.lease_s,
        )

    def finish(self, attempt: AttemptRow) -> None:
        """Send everything of a claimed attempt."""
        run = self.store.run(attempt.run_id)
        blueprint = self.store.blueprint(run.blueprint_id)
        gain = self.truth(blueprint.blueprint.factors, run.seed)
        if gain is None:
            self._end(attempt, "failed", self.failure, "synthetic failure", {})
            return
        rng = random.Random(f"synthetic/{blueprint.cell_hash}/{run.seed}")  # noqa: S311 - no secret
        self._measure(attempt, blueprint, gain + rng.gauss(0, self.spread), run.seed)
        self._end(attempt, "succeeded", None, "", {"seed": run.seed})

    def obey(self, attempt: AttemptRow) -> None:
        """End a held attempt that was asked to stop."""
        found = self.store.attempt(attempt.id)
        self._end(found, "cancelled", FailureClass.STOPPED, found.stop_reason or "", {})

    def _end(
        self,
        attempt: AttemptRow,
        outcome: Any,
        failure: FailureClass | None,
        reason: str,
        summary: dict[str, Any],
    ) -> None:
        self.store.finish_attempt(
            attempt.id,
            attempt.fencing_token,
            outcome,
            failure,
            reason,
            summary,
            self.clock.time(),
        )

    def _measure(self, attempt: AttemptRow, row: BlueprintRow, gain: float, seed: int) -> None:
        blueprint = row.blueprint
        train = blueprint.servers[0].train
        last, batch = train.stop_at_step, train.batch
        steps = [synthetic_step(k, batch.tasks, batch.repeat) for k in range(1, last + 1)]
        self.store.add_steps(attempt.id, attempt.fencing_token, steps)
        items = blueprint.evaluator.items
        start = round(START_SHARE * items)
        # Neighbouring seeds differ by an item at least: equal gains would leave a test without spread.
        end = min(items, max(0, start + round(gain * items) + seed % 3 - 1))
        between = [
            (r, int(r.removeprefix("step-")), (start + end) // 2) for r in _between(blueprint)
        ]
        for name, step, good in (("initial", 0, start), *between, ("final", last, end)):
            found = EvalRound(
                fencing_token=attempt.fencing_token,
                name=name,
                step=step,
                policy_version=step,
                planned=items,
                item_set_hash=blueprint.evaluator.item_set_hash,
                evaluator_hash=blueprint.evaluator.source_hash,
                fingerprint=blueprint.servers[0].model_fingerprint if step == 0 else f"v{step}",
                items=[synthetic_item(n, float(n < good), step) for n in range(items)],
            )
            self.store.add_eval_round(attempt.id, attempt.fencing_token, found)


def _between(blueprint: Blueprint) -> list[str]:
    """Declared rounds besides the first and the last: ``step-<k>``."""
    return [r for r in blueprint.evaluator.rounds if r.startswith("step-")]


def synthetic_item(number: int, reward: float, version: int) -> EvalItem:
    """An item that was answered in three calls by ``version``."""
    return EvalItem(
        item_id=f"held-out-0-{number}",
        reward=reward,
        policy_version=version,
        calls=3,
        truncated_calls=0,
    )


def synthetic_step(number: int, groups: int, repeat: int) -> dict[str, Any]:
    """A step that consumed the batch that its blueprint plans: the referee looks."""
    required = (n for n, f in StepMetrics.model_fields.items() if f.is_required())
    body: dict[str, Any] = dict.fromkeys(required)
    body |= {"step": number, "policy_version": number, "updated": True, "reward_mean": START_SHARE}
    episodes = groups * repeat
    body |= {"groups": groups, "episodes": episodes, "rows": episodes, "calls": 3 * episodes}
    body |= {"divergences": 0}
    body |= {"rollout_s": 0.1, "drain_s": 0.0, "update_s": 0.1, "finished_at": float(number)}
    body |= {"tokens": {}, "episodes_dropped": {}, "fingerprint": f"v{number}"}
    return StepMetrics.model_validate(body).model_dump(mode="json")
