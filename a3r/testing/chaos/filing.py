"""Campaigns of the lanes: a goal on the toy engine, whose first stage is filed with a client that misbehaves.

The design is the real planner's and the leader takes it from there. Only the client's code comes from here, because the static
checks of a user's code would refuse what it does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a3r.blueprints.artifact import pack_tree
from a3r.blueprints.model import Blueprint
from a3r.core.clock import SystemClock
from a3r.core.hashing import tree_hash
from a3r.core.types import ReviewMode
from a3r.leader.experiment import ClientBundle, build_blueprints
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.plan import StagePlan
from a3r.leader.sweep import SweepPlanner
from a3r.report.export import records_from_store
from a3r.store.store import Store

CLIENT = Path(__file__).parent / "client"
PATIENT = {
    "limits.max_time_s": 900,
    "limits.first_step_deadline_s": 300,
    "limits.stall_deadline_s": 300,
    "limits.max_attempts": 3,
    "limits.max_client_restarts": 50,
    "limits.max_server_restarts": 50,
}
"""A run that is broken on purpose needs more restarts than one that breaks by itself."""


@dataclass(frozen=True)
class Study:
    """What a lane's campaign is made of."""

    seeds: int = 1
    """Of each of the two levels."""
    steps: int = 4
    mischief: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the client of this folder, as its docstring says."""
    capacity: int = 2
    engine: str = "toy"
    max_stages: int = 1
    items: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More settings of the goal, by dotted path."""

    def goal_text(self) -> str:
        """The goal.md."""
        settings = {
            **({"engine": self.engine} if self.engine != "torch" else {}),
            "steps": self.steps,
            "group_size": 2,
            "sampling.max_response_tokens": 8,
            "client.arguments.parallel": 2,
            **PATIENT,
            **self.settings,
        }
        head = {
            "name": "a campaign that is broken on purpose",
            "question": {"kind": "minimum", "factor": "train_batch_size"},
            "task": "calculator",
            "model": "builtin:tiny-calc",
            "factors": {"train_batch_size": {"levels": [1, 2]}},
            "metric": {"name": "held_out_reward", "items": self.items},
            "criterion": {"min_gain": 0.2, "confidence": 0.95},
            "settings": settings,
            "seeds": {"coarse": self.seeds, "refine": 1, "replicate": 2},
            "budget": {"max_stages": self.max_stages},
            "capacity": self.capacity,
            "planner": "sweep",
            "review": "none",
        }
        # JSON is YAML.
        return f"---\n{json.dumps(head, indent=1)}\n---\nNothing is to be found out here.\n"


def write_goal(study: Study, folder: Path) -> Path:
    """Write goal.md for a campaign that the daemon plans by itself; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "goal.md"
    path.write_text(study.goal_text(), encoding="utf-8")
    return path


def file_campaign(store: Store, study: Study, folder: Path) -> str:
    """File the campaign with its first stage, before any daemon runs; returns its id."""
    clock, path = SystemClock(), write_goal(study, folder)
    text = study.goal_text()
    goal = parse_goal(text, path)
    spec = goal.model_dump(mode="json")
    campaign = store.create_campaign(
        goal.name, text, str(folder), spec, ReviewMode.NONE, "sweep", clock.time()
    )
    _add_first_stage(store, campaign.id, goal, study, folder)
    return campaign.id


def _add_first_stage(
    store: Store, campaign_id: str, goal: GoalSpec, study: Study, folder: Path
) -> None:
    plan = SweepPlanner().next(goal, records_from_store(store, campaign_id))
    assert isinstance(plan, StagePlan)
    client = ClientBundle(pack_tree(CLIENT), tree_hash(CLIENT), "chaos")
    sha = store.put_artifact(client.data)
    blueprints = build_blueprints(goal, plan, 1, {goal.task: client}, folder)
    rows = [(_with(blueprint, study.mischief), sha) for blueprint in blueprints]
    document = plan.model_dump(mode="json")
    store.add_stage(campaign_id, plan.kind, document, rows, SystemClock().time())


def _with(blueprint: Blueprint, mischief: Mapping[str, Any]) -> Blueprint:
    # The goal's own check of arguments knows the task's client, which reads none of these.
    client = blueprint.clients[0]
    arguments = {**client.arguments, **mischief}
    return blueprint.model_copy(
        update={"clients": (client.model_copy(update={"arguments": arguments}),)}
    )
