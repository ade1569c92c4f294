"""What the analysis needs of a goal, read from the goal's spec as it was recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from a3r.core.errors import GoalError
from a3r.report.records import Scalar


@dataclass(frozen=True)
class Question:
    """The minimum question: the smallest level of ``factor`` that still trains, for each value of ``across``."""

    factor: str
    levels: tuple[float, ...]
    """The grid, ascending."""
    across: str | None
    conditions: tuple[Scalar, ...]
    """Levels of ``across`` in the goal's order; ``(None,)`` when nothing is compared."""
    metric: str
    direction: str
    items: int
    """Held-out items a round."""
    missing_allowed: float
    """Share of a round's items that may be missing; default 0."""
    min_gain: float
    confidence: float

    @property
    def alpha(self) -> float:
        """One-sided level of the Holm-adjusted family."""
        return round(1 - self.confidence, 12)

    def below(self, level: float) -> float | None:
        """Next lower level of the grid; None at the lowest."""
        lower = [x for x in self.levels if x < level]
        return lower[-1] if lower else None


def question_of(spec: dict[str, Any]) -> Question:
    """Read the question from a goal spec; GoalError when a needed key is missing or not a minimum question."""
    try:
        asked: dict[str, Any] = spec["question"]
        if asked["kind"] != "minimum":
            msg = f"question.kind {asked['kind']!r} is not analysed yet"
            raise GoalError(msg, hint="Use kind: minimum.")
        factors: dict[str, Any] = spec["factors"]
        across: str | None = asked.get("across")
        metric: dict[str, Any] = spec.get("metric") or {}
        criterion: dict[str, Any] = spec["criterion"]
        return Question(
            factor=asked["factor"],
            levels=tuple(sorted(levels_of(factors[asked["factor"]]))),
            across=across,
            conditions=tuple(levels_of(factors[across])) if across else (None,),
            metric=str(metric.get("name", "held_out_reward")),
            direction=str(metric.get("direction", "maximize")),
            items=int(metric["items"]),
            missing_allowed=float(metric.get("missing_allowed") or 0.0),
            min_gain=float(criterion["min_gain"]),
            confidence=float(criterion.get("confidence", 0.95)),
        )
    except KeyError as error:
        msg = f"the goal spec has no {error.args[0]!r}"
        raise GoalError(
            msg, hint="Run `a3r campaign check` on goal.md: it says what is missing."
        ) from error


def levels_of(factor: dict[str, Any]) -> list[Any]:
    """Levels of a factor: ``levels`` as listed, or ``range`` [low, high] in ``scale`` log2 (default) or linear steps of 1."""
    if factor.get("levels") is not None:
        return list(factor["levels"])
    low, high = factor["range"]
    if factor.get("scale", "log2") == "log2":
        return [low * 2**k for k in range(int(math.log2(high / low) + 1e-9) + 1)]
    return list(range(int(low), int(high) + 1))
