"""What a goal's words mean together: every mistake that no single field shows."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from a3r.core.types import Direction
from a3r.leader.factors import RESERVED, Scalar, choices, path_of, refusal, suggestion
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_text import Mistake
from a3r.leader.model_files import find_model
from a3r.leader.tasks import TASKS


def find_mistakes(spec: GoalSpec, folder: Path) -> list[Mistake]:
    """Every mistake, in the order of the file's usual keys; ``folder`` is the goal's."""
    return [
        *_task_and_model(spec, folder),
        *_question(spec),
        *_factors(spec),
        *_settings(spec),
        *_budget(spec),
    ]


def _task_and_model(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    if spec.task not in TASKS:
        near = get_close_matches(spec.task, TASKS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        yield Mistake(("task",), f"there is no task {spec.task!r}; {hint}Known: {', '.join(TASKS)}")
    try:
        find_model(spec.model, folder)
    except ValueError as error:
        yield Mistake(("model",), str(error))
    if spec.metric.direction is not Direction.MAXIMIZE:
        yield Mistake(
            ("metric", "direction"),
            f"{spec.metric.name!r} is better when it is larger: write `direction: maximize`",
        )


def _question(spec: GoalSpec) -> Iterator[Mistake]:
    known = ", ".join(spec.factors) or "none"
    question = spec.question
    for key, name in (("factor", question.factor), ("across", question.across)):
        if name is not None and name not in spec.factors:
            yield Mistake(
                ("question", key),
                f"the question's {key} {name!r} is not among the factors ({known})",
            )
    if question.across == question.factor:
        yield Mistake(
            ("question", "across"),
            f"the question asks for {question.factor!r} across itself: choose another factor, or leave `across` out",
        )
    levels = spec.factors[question.factor].levels if question.factor in spec.factors else ()
    if any(isinstance(x, (str, bool)) for x in levels):
        yield Mistake(
            ("factors", question.factor, "levels"),
            f"a minimum needs numbers: the levels of {question.factor!r} are {list(levels)!r}",
        )


def _factors(spec: GoalSpec) -> Iterator[Mistake]:
    served = (spec.question.factor, spec.question.across)
    for name, factor in spec.factors.items():
        where = ("factors", name)
        if len(factor.levels) < 2:
            yield Mistake(
                where,
                f"factor {name!r} has {len(factor.levels)} level(s), so nothing varies: give at least 2, "
                "or put the value under `settings`",
            )
        if name not in served:
            yield Mistake(
                where,
                f"factor {name!r} is neither the question's factor nor its `across`, and the sweep planner would "
                "leave it out: put one value under `settings`",
            )
        yield from _place(name, where)
        for level in factor.levels:
            yield from _value(name, level, where)


def _settings(spec: GoalSpec) -> Iterator[Mistake]:
    factor_paths = {path_of(name): name for name in spec.factors}
    seen: dict[str, str] = {}
    for name, value in spec.settings.items():
        where = ("settings", name)
        path = path_of(name)
        if path is not None and path in factor_paths:
            yield Mistake(where, f"{name!r} is a factor too: a run can not have both values")
        if path is not None and path in seen:
            yield Mistake(where, f"{name!r} and {seen[path]!r} are the same setting")
        seen[path or name] = name
        yield from _place(name, where)
        yield from _value(name, value, where)


def _place(name: str, where: tuple[str, ...]) -> Iterator[Mistake]:
    path = path_of(name)
    if path is None:
        yield Mistake(where, f"there is no factor or setting {name!r}; {suggestion(name)}")
    elif path in RESERVED:
        yield Mistake(where, f"{name!r} is set by the campaign itself and can not be chosen here")


def _value(name: str, value: Scalar, where: tuple[str, ...]) -> Iterator[Mistake]:
    if path_of(name) is None or path_of(name) in RESERVED:
        return
    why = refusal(name, value)
    if why is not None:
        closed = choices(name)
        listed = f" (choose one of {', '.join(closed)})" if closed else ""
        yield Mistake(where, f"{name} = {value!r} is out of range: {why}{listed}")


def _budget(spec: GoalSpec) -> Iterator[Mistake]:
    limit = spec.budget.max_runs
    if spec.question.across is not None and spec.question.across not in spec.factors:
        return  # told already; there is nothing to count
    need = 2 * len(spec.conditions) * spec.seeds.coarse
    if limit is not None and limit < need:
        yield Mistake(
            ("budget", "max_runs"),
            f"max_runs is {limit}, but the first stage alone needs at least {need} runs "
            f"(2 levels x {len(spec.conditions)} condition(s) x {spec.seeds.coarse} seed(s))",
        )
