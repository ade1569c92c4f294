"""What the analysis needs of a goal, read from the goal's spec as it was recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from a3r.core.errors import GoalError
from a3r.report.records import Scalar

KINDS = ("minimum", "best", "comparison", "interaction")


@dataclass(frozen=True)
class Question:
    """What is asked of ``factor``, for each value of ``across``."""

    kind: str
    """``minimum``, ``best``, ``comparison`` or ``interaction``."""
    of: str
    """Of an interaction: ``effect`` or ``minimum``."""
    factor: str
    levels: tuple[Scalar, ...]
    """The grid: numbers ascending, words as the goal lists them."""
    across: str | None
    conditions: tuple[Scalar, ...]
    """Levels of ``across`` in the goal's order; ``(None,)`` when nothing is compared."""
    metric: str
    measure: str
    """What a run contributes: ``gain`` (final minus version 0) or ``final``."""
    direction: str
    items: int
    """Held-out items a round."""
    missing_allowed: float
    """Share of a round's items that may be missing; default 0."""
    min_gain: float
    confidence: float
    baseline: Scalar
    """The level that a comparison or an interaction compares with; the first one when the goal names none."""
    smallest_effect: float | None
    """Smallest difference that matters; None: equivalence is not asked."""
    rivals: int
    """Levels that are repeated on fresh seeds besides the leader or the baseline, at most."""

    @property
    def alpha(self) -> float:
        """Level of the Holm-adjusted family, of one-sided tests in both directions."""
        return round(1 - self.confidence, 12)

    @property
    def asks_minimum(self) -> bool:
        """Whether the answer is a smallest level that trains."""
        return self.kind == "minimum" or (self.kind == "interaction" and self.of == "minimum")

    @property
    def numeric(self) -> bool:
        """Whether the levels have an order: numbers, no words and no truth values."""
        return len(self.numbers) == len(self.levels)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The levels that are numbers."""
        return tuple(
            x for x in self.levels if isinstance(x, (int, float)) and not isinstance(x, bool)
        )

    def below(self, level: float) -> float | None:
        """Next lower level of the grid; None at the lowest."""
        lower = [x for x in self.numbers if x < level]
        return lower[-1] if lower else None


def question_of(spec: dict[str, Any]) -> Question:
    """Read the question from a goal spec; GoalError when a needed key is missing or the kind is none that is analysed."""
    try:
        asked: dict[str, Any] = spec["question"]
        if asked["kind"] not in KINDS:
            msg = f"question.kind {asked['kind']!r} is not analysed"
            raise GoalError(msg, hint=f"Use one of {', '.join(KINDS)}.")
        factors: dict[str, Any] = spec["factors"]
        across: str | None = asked.get("across")
        metric: dict[str, Any] = spec.get("metric") or {}
        criterion: dict[str, Any] = spec["criterion"]
        levels = _in_order(levels_of(factors[asked["factor"]]))
        smallest = spec.get("smallest_effect")
        named = asked.get("baseline")
        return Question(
            kind=str(asked["kind"]),
            of=str(asked.get("of") or "effect"),
            factor=asked["factor"],
            levels=levels,
            across=across,
            conditions=tuple(levels_of(factors[across])) if across else (None,),
            metric=str(metric.get("name", "held_out_reward")),
            measure=str(metric.get("measure") or "gain"),
            direction=str(metric.get("direction", "maximize")),
            items=int(metric["items"]),
            missing_allowed=float(metric.get("missing_allowed") or 0.0),
            min_gain=float(criterion["min_gain"]),
            confidence=float(criterion.get("confidence", 0.95)),
            baseline=levels[0] if named is None else named,
            smallest_effect=None if smallest is None else float(smallest),
            rivals=int(criterion.get("rivals") or 4),
        )
    except KeyError as error:
        msg = f"the goal spec has no {error.args[0]!r}"
        raise GoalError(
            msg, hint="Run `a3r campaign check` on goal.md: it says what is missing."
        ) from error


def _in_order(levels: list[Any]) -> tuple[Any, ...]:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in levels)
    return tuple(sorted(levels)) if numbers else tuple(levels)


def levels_of(factor: dict[str, Any]) -> list[Any]:
    """Levels of a factor: ``levels`` as listed, or ``range`` [low, high] in ``scale`` log2 (default) or linear steps of 1."""
    if factor.get("levels") is not None:
        return list(factor["levels"])
    low, high = factor["range"]
    if factor.get("scale", "log2") == "log2":
        return [low * 2**k for k in range(int(math.log2(high / low) + 1e-9) + 1)]
    return list(range(int(low), int(high) + 1))
