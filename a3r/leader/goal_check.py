"""``a3r campaign check``: says back what was understood, what is missing or odd, what it will cost and what it can resolve."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from a3r.core.errors import GoalError
from a3r.leader.factors import ARGUMENTS, path_of
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_cost import estimated_episodes, estimated_runs, llm_text, most_gpu_hours
from a3r.leader.goal_engines import engine_warnings
from a3r.leader.goal_parsing import goal_file, goal_text, parse_goal
from a3r.leader.goal_power import resolution
from a3r.leader.goal_words import understood
from a3r.leader.model_files import BUILTIN
from a3r.leader.tasks import TASKS


class GoalCheck(BaseModel):
    """What a check found. ``ok`` when nothing is wrong; warnings do not stop a campaign."""

    model_config = ConfigDict(frozen=True)

    ok: bool
    path: str
    understood: list[str]
    """Sentences; empty when the goal could not be read."""
    mistakes: list[str]
    """What is wrong or missing, paths included."""
    warnings: list[str]
    estimated_runs: tuple[int, int] | None
    """Fewest and most runs that the sweep planner asks for before a budget ends it; None when the goal could not be read."""
    estimated_episodes: tuple[int, int] | None
    """Train episodes of these runs at the smallest and the largest cell; None likewise."""
    most_gpu_hours: float | None = None
    """If every run took its whole time limit; None likewise, and when a cell takes no GPU."""
    llm: str = ""
    """What the language model may spend, in words; empty without one."""
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
    return check_spec(spec, file)


def check_spec(spec: GoalSpec, file: Path) -> GoalCheck:
    """The report on a goal without mistakes, also one that was understood from prose; ``file`` is where it lies."""
    runs = estimated_runs(spec)
    power = resolution(spec)
    odd = warnings(spec, runs)
    if not power.resolvable:
        odd.append(
            "the smallest effect that matters will most likely stay open with these seeds: give more fresh seeds, or a "
            "larger effect"
        )
    return GoalCheck(
        ok=True,
        path=str(file),
        understood=understood(spec),
        mistakes=[],
        warnings=odd,
        estimated_runs=runs,
        estimated_episodes=estimated_episodes(spec, runs, file.parent),
        most_gpu_hours=most_gpu_hours(spec, runs) or None,
        llm=llm_text(spec),
        resolvable=power.text,
    )


def warnings(spec: GoalSpec, runs: tuple[int, int]) -> list[str]:
    """What is allowed but odd."""
    return [
        *_of_the_study(spec),
        *_of_the_budget(spec, runs),
        *engine_warnings(spec),
        *_of_the_place(spec),
    ]


def _of_the_study(spec: GoalSpec) -> list[str]:
    found: list[str] = []
    if not spec.pilot:
        found.append(
            "`pilot` is empty: say how the settings were chosen; the report will print that nothing was disclosed"
        )
    if spec.seeds.replicate < 3:
        found.append("2 fresh seeds give very wide intervals: little will be confirmed")
    if not spec.question.asks_minimum and spec.smallest_effect is None:
        found.append(
            "there is no `smallest_effect`: levels that do about equally well can not be shown to be equivalent, and will "
            "stay 'not shown to differ'"
        )
    levels = len(spec.levels)
    if spec.question.kind in ("best", "comparison") and levels > 1 + spec.criterion.rivals:
        found.append(
            f"{levels} levels, of which at most {1 + spec.criterion.rivals} a condition are repeated on fresh seeds "
            "(`criterion.rivals`): of the others nothing will be confirmed"
        )
    if spec.review.value == "none":
        found.append("`review: none`: blueprints run without a person's approval")
    named = [*spec.settings, *(spec.factors[f].path or f for f in spec.factors)]
    free = sorted({n for n in named if (path_of(n) or "").startswith(ARGUMENTS)})
    if free and spec.task not in TASKS:
        found.append(
            f"the client must read {', '.join(free)}; a value that it does not read changes nothing"
        )
    return found


def _of_the_budget(spec: GoalSpec, runs: tuple[int, int]) -> list[str]:
    found: list[str] = []
    budget = spec.budget
    if budget.max_runs is not None and runs[1] > budget.max_runs:
        found.append(
            f"up to {runs[1]} runs may be wanted, max_runs is {budget.max_runs}: the campaign may end unresolved"
        )
    numbers = spec.factors[spec.question.factor].numeric
    refined = spec.question.asks_minimum or (spec.question.kind == "best" and numbers)
    need = 3 if refined else 2
    if budget.max_stages < need:
        stages = "coarse, refine and replicate" if refined else "coarse and replicate"
        found.append(f"max_stages is {budget.max_stages}: {stages} need at least {need}")
    unlimited = budget.llm_usd is None and budget.llm_tokens is None and budget.llm_calls is None
    if spec.planner == "llm" and unlimited:
        found.append(
            "the language model has no limit: give `budget: {llm_usd: ...}`, `llm_tokens` or `llm_calls`"
        )
    return found


def _of_the_place(spec: GoalSpec) -> list[str]:
    models = {spec.model}
    for name, factor in spec.factors.items():
        if spec.place_of(name) == "model":
            models |= {str(factor.value(level)) for level in factor.levels}
    return [
        f"the model {model!r} is a folder of this machine: its whole path becomes part of every blueprint and will stand in the "
        "report's records"
        for model in sorted(models)
        if not model.startswith(BUILTIN)
    ]
