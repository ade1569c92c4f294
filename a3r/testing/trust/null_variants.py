"""Twenty variants without any effect, many campaigns, the real planner and analysis: how often does a report call one a win?

A keep-the-best loop finds a "winner" in almost every such campaign; twenty uncorrected tests do in 28 to 64 of a hundred. The minimum
is asked at its hardest place: every true gain equals the criterion exactly.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from a3r.leader.goal import GoalSpec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.sweep import SweepPlanner
from a3r.report.claims import Claim
from a3r.report.records import Records, Scalar
from a3r.report.render import claims_of
from a3r.stats.intervals import wilson_interval
from a3r.testing.trust.figure import Figure, percent
from a3r.testing.trust.world import Truth, World

CAMPAIGNS = 400
LIMIT = 0.05
GAIN, NOISE = 0.05, 0.03
QUESTIONS = {
    "minimum": "kind: minimum, factor: train_batch_size",
    "best": "kind: best, factor: train_batch_size",
    "comparison": "kind: comparison, factor: train_batch_size, baseline: 1",
}
WINS = frozenset({"trains", "higher", "lower"})
"""Verdicts that tell a reader of an effect."""
GOAL = """---
name: twenty variants without effect
question: {%s}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {range: [1, %d], scale: linear}
metric: {name: held_out_reward, items: 10}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 2e-3, group_size: 4, steps: 1}
seeds: {coarse: 2, refine: 2, replicate: 4}
budget: {max_stages: 40}
planner: sweep
---
Synthetic.
"""


def null_figures(scale: float = 1.0) -> list[Figure]:
    """One figure a kind of question."""
    return [_figure(kind, max(20, int(CAMPAIGNS * scale))) for kind in QUESTIONS]


def _figure(kind: str, campaigns: int) -> Figure:
    goal = null_goal(kind)
    wins = runs = 0
    for seed in range(campaigns):
        records = World(goal, SweepPlanner(), null_truth, seed).play()
        runs += len(records.runs)
        wins += won(records)
    low, high = wilson_interval(wins, campaigns)
    return Figure(
        f"campaigns with a false win, 20 variants without effect ({kind})",
        f"at most {percent(LIMIT)}",
        percent(wins / campaigns),
        wins / campaigns <= LIMIT,
        f"{wins} of {campaigns} campaigns ({percent(low)} to {percent(high)}), {runs / campaigns:.0f} runs each.",
    )


def null_goal(kind: str) -> GoalSpec:
    """Twenty levels; a comparison has its baseline besides."""
    levels = 21 if kind == "comparison" else 20
    return parse_goal(GOAL % (QUESTIONS[kind], levels), Path("goal.md"))


def null_truth(factors: Mapping[str, Scalar], rng: random.Random) -> float:
    """The same for every cell."""
    return GAIN + rng.gauss(0, NOISE)


def effect_at(level: int, size: float) -> Truth:
    """One level that is better by ``size``: shows that the campaigns can win at all."""

    def truth(factors: Mapping[str, Scalar], rng: random.Random) -> float:
        return null_truth(factors, rng) + size * (factors["train_batch_size"] == level)

    return truth


def won(records: Records) -> bool:
    """Whether the report of these records tells of an effect."""
    return any(is_win(claim) for claim in claims_of(records))


def is_win(claim: Claim) -> bool:
    """A claim that tells a reader of an effect: a verdict, or a confirmed best level."""
    if claim.kind == "best" and claim.values.get("status") == "confirmed":
        return True
    return _holds_win(claim.values)


def _holds_win(value: Any) -> bool:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return any((k == "verdict" and v in WINS) or _holds_win(v) for k, v in found.items())
    return isinstance(value, list | tuple) and any(map(_holds_win, cast("list[Any]", value)))
