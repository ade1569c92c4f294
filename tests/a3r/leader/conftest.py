from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.a3r.leader.rig import Rig

GOAL = """---
name: a small question
question: {kind: minimum, factor: train_batch_size, across: max_response_tokens}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2, 4, 8, 16, 32, 64]}
  max_response_tokens: {levels: [10, 16]}
metric: {name: held_out_reward, direction: maximize, items: 40}
criterion: {min_gain: 0.05, confidence: 0.95}
settings:
  learning_rate: 2e-3
  group_size: 4
  steps: 5
seeds: {coarse: 2, refine: 2, replicate: 4, first: 1}
budget: {wall_clock_min: 20, max_stages: 8}
capacity: 2
pilot: "none"
---
Prose.
"""


@pytest.fixture
def goal_text() -> str:
    return GOAL


@pytest.fixture
def demo() -> Path:
    return Path(__file__).parents[3] / "campaigns" / "min_batch_size" / "goal.md"


@pytest.fixture
def small(goal_text) -> str:
    levels = goal_text.replace("[1, 2, 4, 8, 16, 32, 64]", "[1, 2, 4, 8]")
    one = levels.replace(", across: max_response_tokens", "")
    less = one.replace("items: 40", "items: 20").replace("steps: 5", "steps: 2")
    return less.replace("  max_response_tokens: {levels: [10, 16]}\n", "")


@pytest.fixture
def rig(tmp_path, small) -> Iterator[Rig]:
    made = Rig(tmp_path / "Projekt für später", small)
    yield made
    made.close()
