"""A small goal of each kind of question that compares levels, a truth for it, and what its report must say."""

from __future__ import annotations

GOAL = """---
name: {kind}
question: {{kind: {kind}, factor: algorithm.name{across}}}
task: calculator
model: builtin:tiny-calc
factors:
  algorithm.name: {{levels: [grpo, rloo]}}
{more}
metric: {{name: held_out_reward, items: 40}}
settings: {{steps: 2, group_size: 2, train_batch_size: 2}}
seeds: {{coarse: 2, refine: 2, replicate: 4}}
smallest_effect: 0.05
evaluations: [1]
planner: {planner}
review: none
pilot: none
---
Prose.
"""
TOLD = {
    "best": "The best algorithm.name of those repeated on fresh seeds is rloo",
    "comparison": "Of algorithm.name, rloo is shown above grpo",
    "interaction": "The effect of algorithm.name rloo instead of grpo",
}
"""Kind of question -> the beginning of its result."""


def goal_of(kind: str, planner: str = "sweep") -> str:
    """The goal's text."""
    two = kind == "interaction"
    return GOAL.format(
        kind=kind,
        planner=planner,
        across=", across: max_response_tokens" if two else "",
        more="  max_response_tokens: {levels: [10, 16]}" if two else "",
    )


def rloo_gains_more(factors, _seed) -> float:
    """And more so with longer answers."""
    if factors["algorithm.name"] == "grpo":
        return 0.1
    return 0.5 if factors.get("max_response_tokens", 16) == 16 else 0.2
