"""``a3r campaign check``: says back what was understood, what is odd, and what the goal will cost."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec, goal_file, goal_text, parse_goal
from a3r.leader.model_files import BUILTIN
from a3r.leader.sweep_steps import coarse_levels
from a3r.leader.training import train_config


class GoalCheck(BaseModel):
    """What a check found. ``ok`` when nothing is wrong; warnings do not stop a campaign."""

    model_config = ConfigDict(frozen=True)

    ok: bool
    path: str
    understood: list[str]
    """Sentences; empty when the goal could not be read."""
    mistakes: list[str]
    warnings: list[str]
    estimated_runs: tuple[int, int] | None
    """Fewest and most runs that the planner can ask for before a budget ends it; None when the goal could not be read."""
    estimated_episodes: tuple[int, int] | None
    """Train episodes of these runs at the smallest and the largest level; None likewise."""
    resolvable: str = ""
    """What the planned fresh seeds can tell apart, in words."""


def check_goal(path: Path) -> GoalCheck:
    """Read a goal and report; a goal with mistakes is a report too, not an error."""
    file = goal_file(path)
    try:
        spec = parse_goal(goal_text(path), file)
    except GoalError as error:
        found = error.details.get("mistakes") or [error.message]
        return GoalCheck(
            ok=False,
            path=str(file),
            understood=[],
            mistakes=[str(m) for m in found],
            warnings=[],
            estimated_runs=None,
            estimated_episodes=None,
        )
    runs = estimated_runs(spec)
    return GoalCheck(
        ok=True,
        path=str(file),
        understood=understood(spec),
        mistakes=[],
        warnings=warnings(spec, runs),
        estimated_runs=runs,
        estimated_episodes=estimated_episodes(spec, runs, file.parent),
        resolvable=resolvable(spec),
    )


def understood(spec: GoalSpec) -> list[str]:
    """The goal in sentences."""
    question, levels = spec.question, ", ".join(map(str, spec.levels))
    asked = f"Find the smallest {question.factor} among {levels} that still trains"
    if question.across is not None:
        values = ", ".join(map(str, spec.conditions))
        asked += f", for {question.across} = {values} each, and whether it changes between them"
    settings = ", ".join(f"{k} = {v}" for k, v in spec.settings.items()) or "none"
    review = {
        "stage": "a person approves each stage's blueprints before they run",
        "all": "a person approves each stage's blueprints, and every later revision of a client",
        "none": "nobody approves blueprints before they run (the report will say so)",
    }[spec.review.value]
    return [
        f"{asked}.",
        f"Task {spec.task!r}, model {spec.model!r}, the same settings in every run: {settings}.",
        f'"Trains" means: on fresh seeds, the gain in {spec.metric.name} ({spec.metric.items} held-out items, final minus '
        f"version 0) has a {spec.criterion.confidence:.0%} t interval whose lower bound is above {spec.criterion.min_gain:g}, "
        "and a one-sided test that holds after Holm's correction over all confirmatory cells.",
        f"Seeds a cell: {spec.seeds.coarse} in the coarse stage, {spec.seeds.refine} when refining, "
        f"{spec.seeds.replicate} fresh ones to confirm.",
        f"Budget: {_budget_text(spec)}; {spec.capacity} run(s) at once; {review}.",
    ]


def _budget_text(spec: GoalSpec) -> str:
    budget = spec.budget
    parts = [f"at most {budget.max_stages} stages"]
    if budget.max_runs is not None:
        parts.append(f"{budget.max_runs} runs")
    if budget.wall_clock_min is not None:
        parts.append(f"{budget.wall_clock_min:g} minutes of work")
    return ", ".join(parts)


def warnings(spec: GoalSpec, runs: tuple[int, int]) -> list[str]:
    """What is allowed but odd."""
    found: list[str] = []
    if not spec.pilot:
        found.append(
            "`pilot` is empty: say how the settings were chosen; the report will print that nothing was disclosed"
        )
    if spec.budget.max_runs is not None and runs[1] > spec.budget.max_runs:
        found.append(
            f"up to {runs[1]} runs may be wanted, max_runs is {spec.budget.max_runs}: the campaign may end unresolved"
        )
    if spec.budget.max_stages < 3:
        found.append(
            f"max_stages is {spec.budget.max_stages}: coarse, refine and replicate need at least 3"
        )
    if spec.seeds.replicate < 3:
        found.append("2 fresh seeds give very wide intervals: little will be confirmed")
    if not spec.model.startswith(BUILTIN):
        found.append(
            f"the model {spec.model!r} is a folder of this machine: its whole path becomes part of every blueprint and will "
            "stand in the report's records"
        )
    if spec.review.value == "none":
        found.append("`review: none`: blueprints run without a person's approval")
    return found


def estimated_runs(spec: GoalSpec) -> tuple[int, int]:
    """Fewest (an edge of the grid is confirmed at once) and most (every level screened, all of them replicated) runs."""
    conditions, levels = len(spec.conditions), len(spec.levels)
    coarse = len(coarse_levels(spec.levels))
    low = conditions * (coarse * spec.seeds.coarse + spec.seeds.replicate)
    screened = coarse * spec.seeds.coarse + (levels - coarse) * spec.seeds.refine
    high = conditions * (screened + levels * spec.seeds.replicate)
    return low, high


def estimated_episodes(spec: GoalSpec, runs: tuple[int, int], folder: Path) -> tuple[int, int]:
    """Bounds of the train episodes: fewest runs at the smallest batch, most runs at the largest."""
    sizes: list[int] = []
    for level in (spec.levels[0], spec.levels[-1]):
        config = train_config(spec, spec.cell(level, spec.conditions[0]), "estimate", folder)
        sizes.append(config.batch.tasks * config.batch.repeat * config.stop_at_step)
    return runs[0] * min(sizes), runs[1] * max(sizes)


def resolvable(spec: GoalSpec) -> str:
    """What the fresh seeds of one cell can confirm, for spreads that are usual here."""
    from a3r.stats.tests import smallest_resolvable_gain  # noqa: PLC0415 - scipy is heavy

    alpha = 1.0 - spec.criterion.confidence
    family = 2 * len(spec.conditions)
    parts: list[str] = []
    for sd in (0.03, 0.1):
        gain = smallest_resolvable_gain(sd, spec.seeds.replicate, alpha, family)
        if gain is not None:
            parts.append(f"{gain:.2f} above the criterion if seeds spread by {sd:g}")
    return (
        f"With {spec.seeds.replicate} fresh seeds and {family} confirmatory cells, a mean gain counts as confirmed from "
        f"{' and '.join(parts)} (standard deviation)."
    )
