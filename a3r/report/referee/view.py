"""What a rule sees: one run with its blueprint, steps and rounds. Reads records, judges nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from a3r.report.records import (
    AttemptRecord,
    BlueprintRecord,
    EvalRecord,
    RunRecord,
    StepRecord,
)

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_BATCH = frozenset({"train_batch_size", "group_size", "batch.tasks", "batch.repeat"})
"""Names of the factors that a batch of another size would change."""


class HeldOut(NamedTuple):
    """Change of the held-out metric from the initial to the final round, over the items that both scored."""

    gain: float
    """Positive = better, whatever the metric's direction."""
    error: float
    """Standard error over items, paired."""

    @property
    def improved(self) -> bool:
        """Better by more than two standard errors."""
        return self.gain > 2 * self.error and self.gain > 0

    @property
    def declined(self) -> bool:
        """Worse by more than two standard errors."""
        return -self.gain > 2 * self.error and self.gain < 0


@dataclass(frozen=True)
class RunView:
    """The evidence of one accepted attempt."""

    run: RunRecord
    attempt: AttemptRecord
    blueprint: BlueprintRecord
    steps: Sequence[StepRecord]
    """In order of the steps."""
    rounds: dict[str, EvalRecord]
    sign: float = 1.0
    """-1 when the goal minimises its metric."""
    twins: tuple[str, ...] = ()
    """Earlier runs of the same cell with another seed whose weights after the last step are the same."""
    train: dict[str, Any] = field(default_factory=dict[str, Any])
    """The first server's training configuration as planned; empty when the blueprint has no server."""

    def series(self, name: str, *, updated: bool = False) -> list[float]:
        """Values of a step column where they were recorded; ``updated``: of steps that moved the weights only."""
        steps = [s for s in self.steps if s.updated] if updated else self.steps
        found = (getattr(s, name) for s in steps)
        return [float(v) for v in found if v is not None]

    @property
    def updates(self) -> int:
        """Steps that moved the weights."""
        return sum(bool(s.updated) for s in self.steps)

    def planned(self, section: str, key: str) -> Any:
        """A setting of the training configuration; None when the blueprint does not say."""
        return self.train.get(section, {}).get(key)

    @property
    def synchronous(self) -> bool:
        """Whether sampling waits for the update; what is not said is synchronous, as in the swarm's defaults."""
        return not self.planned("asynchronous", "enabled")

    @property
    def batch_under_study(self) -> bool:
        """Whether the size of a batch is one of the factors."""
        return not _BATCH.isdisjoint(self.blueprint.factors)

    @cached_property
    def held_out(self) -> HeldOut | None:
        """None without both rounds or with fewer than two items that both scored."""
        before, after = (_scores(self.rounds.get(name)) for name in ("initial", "final"))
        gains = [self.sign * (after[i] - before[i]) for i in sorted(before.keys() & after.keys())]
        if len(gains) < 2:
            return None
        return HeldOut(fmean(gains), pstdev(gains) / (len(gains) - 1) ** 0.5)

    @property
    def improved(self) -> bool:
        """Whether the held-out metric clearly got better; False when nobody knows."""
        return self.held_out is not None and self.held_out.improved

    @cached_property
    def reward_range(self) -> float:
        """Largest minus smallest reward seen, of single items and of step means; 0 when none was seen."""
        seen = self._rewards()
        return max(seen) - min(seen) if seen else 0.0

    @cached_property
    def solved(self) -> bool:
        """Whether training ended within a tenth of the best reward of any single item: nothing was left to learn."""
        late = self.series("reward_mean")[-max(len(self.steps) // 3, 1) :]
        seen = self._rewards()
        return (
            bool(late)
            and self.reward_range > 0
            and fmean(late) >= max(seen) - 0.1 * self.reward_range
        )

    def _rewards(self) -> list[float]:
        items = [i.reward for r in self.rounds.values() for i in r.items if i.reward is not None]
        return items + self.series("reward_mean")


def known_fingerprint(text: object) -> str:
    """The text when it is a fingerprint of weights (16 hex digits), else empty: anything else proves nothing."""
    return text if isinstance(text, str) and _FINGERPRINT.fullmatch(text) else ""


def _scores(found: EvalRecord | None) -> dict[str, float]:
    if found is None:
        return {}
    return {i.item_id: i.reward for i in found.items if i.reward is not None}
