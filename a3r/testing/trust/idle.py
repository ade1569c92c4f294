"""A campaign that a language model leads: while runs merely run, nobody asks it anything.

Real reconciler, jobs, desk and planner; the model follows a script and counts what reaches it. Between two stages it is asked, and
must be: a figure of zero would mean nothing otherwise.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.llm import ModelRequest
from a3r.core.types import CampaignState, ReviewMode
from a3r.core.workspace import Workspace
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.handlers import leader_handlers
from a3r.leader.jobs import JobRunner
from a3r.leader.reconcile import reconcile
from a3r.store.store import Store
from a3r.testing.fake_worker import FakeWorker
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.script import Answer, said, task_of
from a3r.testing.trust.figure import Figure

LEVELS = (1, 4, 8)
TICKS_A_RUN = 12
"""Looks of the leader, with a job thread beside it, while one run goes on; a minute apart."""
MOST_ROUNDS = 400
GOAL = """---
name: a campaign that is led by a model
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 4, 8]}
metric: {name: held_out_reward, items: 20}
criterion: {min_gain: 0.05, confidence: 0.95}
settings: {learning_rate: 2e-3, group_size: 2, steps: 2}
seeds: {coarse: 2, refine: 2, replicate: 4}
budget: {max_stages: 4}
capacity: 2
planner: llm
---
Which batch size is the smallest that still trains?
"""


@dataclass
class MinuteClock:
    """A minute passes with every tick."""

    now: float = 1_800_000_000.0

    def time(self) -> float:
        """Unix seconds."""
        return self.now

    def monotonic(self) -> float:
        """The same."""
        return self.now


def planner_script(request: ModelRequest) -> Answer:
    """Explore every level, confirm the two highest, finish; nothing else is answered."""
    if task_of(request) != "plan":
        return Answer(status=400, error="the script only plans")
    numbers = re.findall(r"Plan stage (\d+)\.", "\n".join(m.content for m in request.messages))
    number = int(numbers[-1]) if numbers else 1
    if number > 2:
        return said({"action": "finish"})
    purpose, levels = ("explore", LEVELS) if number == 1 else ("confirm", LEVELS[:2])
    return said({"action": "stage", "stage": _proposal(purpose, levels)})


def _proposal(purpose: str, levels: tuple[int, ...]) -> dict[str, Any]:
    cells = [{"train_batch_size": level} for level in levels]
    return {
        "purpose": purpose,
        "cells": cells,
        "predictions": [{"cell": cells[-1], "expects": "above_criterion"}],
        "decision_table": [
            {"when": "all_predictions_hold", "next": "confirm_on_fresh_seeds"},
            {"when": "some_predictions_fail", "next": "conclude"},
        ],
    }


def idle_figure(script: Callable[[ModelRequest], Answer] = planner_script) -> Figure:
    """Tokens that were asked for while at least one run was on and no stage was open for planning."""
    model = ScriptedModel(script)
    with tempfile.TemporaryDirectory(prefix="a3r-trust-") as scratch:
        looks, idle_calls, runs, ended = _play(Path(scratch), model)
    tokens = sum(model.count_tokens(request) for request in idle_calls)
    return Figure(
        "language model tokens while runs merely run",
        "0",
        f"{tokens} in {looks} looks at {runs} runs",
        tokens == 0 and ended and runs > 0 and len(model.asked) > 1,
        f"{len(model.asked)} calls between the stages and for the report.",
    )


def _play(folder: Path, model: ScriptedModel) -> tuple[int, list[ModelRequest], int, bool]:
    """(looks while runs ran, requests in that time, runs, whether the campaign ended)."""
    clock, workspace = MinuteClock(), Workspace.create(folder / ".a3r")
    looks, runs, asked = 0, 0, list[ModelRequest]()
    with Store.open(workspace.database, clock) as store:
        spec = parse_goal(GOAL, folder / "goal.md").model_dump(mode="json")
        campaign = store.create_campaign(
            "led", GOAL, str(folder), spec, ReviewMode.NONE, "llm", clock.time()
        ).id
        jobs = JobRunner(store, clock, workspace, model, leader_handlers())
        worker = FakeWorker(store, clock, _truth, lease_s=1e9)

        def look() -> None:
            clock.now += 60
            reconcile(store, clock, workspace)
            jobs.run_all()

        for _ in range(MOST_ROUNDS):
            look()
            if store.campaign(campaign).state in (CampaignState.DONE, CampaignState.BLOCKED):
                break
            held = worker.hold()
            if held is None:
                continue
            before = len(model.asked)
            for _ in range(TICKS_A_RUN):
                look()
            asked += model.asked[before:]
            looks, runs = looks + TICKS_A_RUN, runs + 1
            worker.finish(held)
        return looks, asked, runs, store.campaign(campaign).state is CampaignState.DONE


def _truth(factors: dict[str, Any], _seed: int) -> float:
    return 0.3 if factors["train_batch_size"] >= 4 else 0.0
