"""What is known of each cell so far, for the planner's eyes and for the rails: counted and averaged by code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.report.gains import RunGain, run_gains
from a3r.report.question import question_of
from a3r.report.records import BlueprintRecord, Records
from a3r.stats.intervals import mean_interval

PLACES = 4


@dataclass
class CellState:
    """One cell that some stage planned."""

    factors: dict[str, Scalar]
    runs: list[RunGain] = field(default_factory=list[RunGain])
    """Planned ones, in order, with or without a result."""

    @property
    def explored(self) -> list[float]:
        """Results of stages that explore."""
        return [r.gain for r in self.runs if r.gain is not None and not r.fresh]

    @property
    def fresh(self) -> list[float]:
        """Results on fresh seeds."""
        return [r.gain for r in self.runs if r.gain is not None and r.fresh]

    @property
    def fresh_planned(self) -> int:
        """Runs planned on fresh seeds, with or without a result."""
        return sum(r.fresh for r in self.runs)

    @property
    def may_be_tried_again(self) -> bool:
        """Whether none of its runs has a result, and only one stage tried: a repaired client may do better. Once, not until it fits."""
        return all(r.gain is None for r in self.runs) and len({r.blueprint for r in self.runs}) == 1

    def view(self, confidence: float) -> dict[str, Any]:
        """For the model: counts, means, intervals; why runs have no result."""
        return {
            "cell": self.factors,
            "planned": len(self.runs),
            "explored": summary(self.explored, confidence),
            "fresh": summary(self.fresh, confidence),
            "without_result": [
                f"{r.blueprint} seed {r.seed}: {r.excluded}"[:200] for r in self.runs if r.excluded
            ],
        }


def cell_states(records: Records) -> list[CellState]:
    """Every planned cell in order of planning; empty before the first stage."""
    if not records.blueprints:
        return []
    by_name = {b.name: b for b in records.blueprints}
    found: dict[str, CellState] = {}
    for gain in run_gains(records, question_of(records.campaign.goal_spec)):
        factors = _factors(by_name[gain.blueprint])
        state = found.setdefault(cell_key(factors), CellState(factors))
        state.runs.append(gain)
    return list(found.values())


def cell_key(factors: dict[str, Scalar]) -> str:
    """Equal for equal cells, whatever the order; ``1`` and ``1.0`` are the same level, ``1`` and ``true`` are not."""
    parts = sorted(factors.items())
    return "|".join(f"{name}={_level(value)}" for name, value in parts)


def level_in(goal: GoalSpec, factor: str, value: Scalar) -> Scalar | None:
    """The goal's own level for a value that a model wrote (16.0 for 16); None when it is none of them."""
    return next((x for x in goal.factors[factor].levels if _level(x) == _level(value)), None)


def summary(values: list[float], confidence: float) -> dict[str, Any]:
    """``{n, mean, low, high}``; bounds are None below two values, the mean is None without any."""
    if not values:
        return {"n": 0, "mean": None, "low": None, "high": None}
    found = mean_interval(values, confidence)
    return {
        "n": len(values),
        "mean": _cut(found.mean),
        "low": _cut(found.low),
        "high": _cut(found.high),
    }


def _factors(blueprint: BlueprintRecord) -> dict[str, Scalar]:
    return {name: value for name, value in blueprint.factors.items() if value is not None}


def _level(value: Scalar) -> str:
    if isinstance(value, (bool, str)):
        return repr(value)
    return f"{float(value):.12g}"


def _cut(value: float | None) -> float | None:
    return None if value is None else round(value, PLACES)
