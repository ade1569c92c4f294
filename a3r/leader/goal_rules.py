"""What a goal's words mean together: every mistake that no single field shows."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from pydantic import JsonValue, ValidationError

from a3r.core.types import Direction
from a3r.leader.factors import ARGUMENTS, RESERVED, Scalar, choices, path_of, refusal, suggestion
from a3r.leader.generate import client_source
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_paths import path_mistakes
from a3r.leader.goal_sections import Factor
from a3r.leader.goal_text import Mistake
from a3r.leader.tasks import TASKS
from a3r.leader.training import cell_settings


def find_mistakes(spec: GoalSpec, folder: Path) -> list[Mistake]:
    """Every mistake, in the order of the file's usual keys; ``folder`` is the goal's."""
    found = [
        *_task(spec),
        *path_mistakes(spec, folder),
        *_metric(spec),
        *_question(spec),
        *_factors(spec),
        *_settings(spec),
        *_arguments(spec),
        *_evaluations(spec),
        *_budget(spec),
    ]
    return found or list(_cells(spec))


def _task(spec: GoalSpec) -> Iterator[Mistake]:
    named: list[tuple[tuple[str, ...], str]] = [(("task",), spec.task)]
    for name, factor in spec.factors.items():
        if spec.place_of(name) == "task":
            named += [(("factors", name), str(factor.value(level))) for level in factor.levels]
    for where, task in named:
        # A task may be the goal's own: its client is then written by a language model, or lies in `code`.
        own = where == ("task",) and (spec.planner == "llm" or bool(spec.code))
        if task not in TASKS and not own:
            near = get_close_matches(task, TASKS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            yield Mistake(where, f"there is no task {task!r}; {hint}Known: {', '.join(TASKS)}")


def _metric(spec: GoalSpec) -> Iterator[Mistake]:
    if spec.metric.direction is not Direction.MAXIMIZE:
        yield Mistake(
            ("metric", "direction"),
            f"{spec.metric.name!r} is better when it is larger: write `direction: maximize`",
        )
    if spec.question.asks_minimum and spec.metric.measure != "gain":
        yield Mistake(
            ("metric", "measure"),
            "a minimum asks which level still trains, so it is measured by the gain: leave `measure` out",
        )


# --- question --------------------------------------------------------------------------------------------------


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
    if question.kind == "interaction" and question.across is None:
        yield Mistake(
            ("question",),
            f"an interaction needs two factors: add `across: <the factor that may change what {question.factor} does>`",
        )
    if question.factor in spec.factors:
        yield from _levels_of_the_question(spec, spec.factors[question.factor])


def _levels_of_the_question(spec: GoalSpec, factor: Factor) -> Iterator[Mistake]:
    question = spec.question
    if question.asks_minimum and not factor.numeric:
        yield Mistake(
            ("factors", question.factor, "levels"),
            f"a minimum needs numbers: the levels of {question.factor!r} are {list(factor.levels)!r}",
        )
    compares = question.kind == "comparison" or (
        question.kind == "interaction" and question.of == "effect"
    )
    if question.baseline is None:
        return
    if not compares:
        yield Mistake(
            ("question", "baseline"),
            f"a question of kind {question.kind!r} has no baseline: leave it out, or ask for a comparison",
        )
    elif question.baseline not in factor.levels:
        yield Mistake(
            ("question", "baseline"),
            f"the baseline {question.baseline!r} is not among the levels of {question.factor!r} "
            f"({', '.join(map(str, factor.levels))})",
        )


# --- factors and settings --------------------------------------------------------------------------------------


def _factors(spec: GoalSpec) -> Iterator[Mistake]:
    served = (spec.question.factor, spec.question.across)
    taken: dict[str, str] = {}
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
                f"factor {name!r} is neither the question's factor nor its `across`, so nothing would vary it: put one "
                "value under `settings`",
            )
        for path in _paths_of(spec, name, factor):
            if path in taken:
                yield Mistake(where, f"factors {taken[path]!r} and {name!r} both set {path}")
            taken[path] = name
        if spec.place_of(name) is None and _is_bundle(factor):
            yield from _bundle(factor, where)
            continue
        place = factor.path or name
        yield from _place(place, where)
        for level in factor.levels:
            yield from _value(place, factor.value(level), where)


def _is_bundle(factor: Factor) -> bool:
    return factor.values is not None and all(isinstance(v, dict) for v in factor.values.values())


def _bundle(factor: Factor, where: tuple[str, ...]) -> Iterator[Mistake]:
    """Named levels that set several settings at once: all of them the same ones, or the cells would differ by more than that."""
    parts = {
        str(level): value
        for level in factor.levels
        if isinstance(value := factor.value(level), dict)
    }
    keys = {level: frozenset(path_of(k) or k for k in value) for level, value in parts.items()}
    if len(set(keys.values())) > 1:
        every = {path for found in keys.values() for path in found}
        level, found = next((n, k) for n, k in keys.items() if every - k)
        yield Mistake(
            where,
            f"level {level!r} does not set {', '.join(sorted(every - found))}, which another level sets: give it in each",
        )
    seen: set[str] = set()
    for value in parts.values():
        for name, part in value.items():
            if name not in seen:
                yield from _place(name, where)
            seen.add(name)
            yield from _value(name, part, where)


def _paths_of(spec: GoalSpec, name: str, factor: Factor) -> list[str]:
    place = spec.place_of(name)
    if place is not None:
        return [place]
    found = [v for v in (factor.values or {}).values() if isinstance(v, dict)]
    return sorted({path_of(key) or key for value in found for key in value})


def _settings(spec: GoalSpec) -> Iterator[Mistake]:
    of_factors = {p: n for n, f in spec.factors.items() for p in _paths_of(spec, n, f)}
    seen: dict[str, str] = {}
    for name, value in spec.settings.items():
        where = ("settings", name)
        path = path_of(name)
        if path in ("model", "task"):
            yield Mistake(where, f"{name!r} is a key of the goal itself: write it there")
            continue
        if path is not None and path in of_factors:
            yield Mistake(where, f"{name!r} is a factor too: a run can not have both values")
        if path is not None and path in seen:
            yield Mistake(where, f"{name!r} and {seen[path]!r} are the same setting")
        seen[path or name] = name
        yield from _place(name, where)
        yield from _value(name, value, where)


def _arguments(spec: GoalSpec) -> Iterator[Mistake]:
    """A shipped client says what it reads: a factor that it does not read would look like one without effect."""
    if spec.task not in TASKS or any(spec.place_of(n) == "task" for n in spec.factors):
        return
    source = client_source(spec.task)
    named = [(("settings", n), path_of(n)) for n in spec.settings]
    named += [(("factors", n), p) for n, f in spec.factors.items() for p in _paths_of(spec, n, f)]
    for where, path in named:
        if path is not None and path.startswith(ARGUMENTS) and path not in RESERVED:
            argument = path.removeprefix(ARGUMENTS)
            if f'arguments["{argument}"]' not in source:
                yield Mistake(
                    where,
                    f"the client of task {spec.task!r} does not read an argument {argument!r}: it would change nothing",
                )


def _place(name: str, where: tuple[str, ...]) -> Iterator[Mistake]:
    path = path_of(name)
    if path is None:
        yield Mistake(where, f"there is no factor or setting {name!r}; {suggestion(name)}")
    elif path in RESERVED:
        yield Mistake(where, f"{name!r} is set by the campaign itself and can not be chosen here")


def _value(name: str, value: JsonValue, where: tuple[str, ...]) -> Iterator[Mistake]:
    if path_of(name) is None or path_of(name) in RESERVED:
        return
    why = refusal(name, value)
    if why is not None:
        closed = choices(name)
        listed = f" (choose one of {', '.join(closed)})" if closed else ""
        yield Mistake(where, f"{name} = {value!r} is out of range: {why}{listed}")


# --- evaluations, budget, cells as a whole ---------------------------------------------------------------------


def _evaluations(spec: GoalSpec) -> Iterator[Mistake]:
    where = ("evaluations",)
    if sorted(set(spec.evaluations)) != list(spec.evaluations):
        yield Mistake(
            where, f"evaluations are steps that ascend; given were {list(spec.evaluations)!r}"
        )
    last = shortest_run(spec)
    late = [k for k in spec.evaluations if k < 1 or (last is not None and k >= last)]
    if late:
        yield Mistake(
            where,
            f"an evaluation after step {late[0]} is not between version 0 and the end"
            + (f" (step {last})" if last is not None else ""),
        )


def shortest_run(spec: GoalSpec) -> int | None:
    """Steps of the shortest run that the goal allows; None when only a task's or the swarm's default says it."""
    counts = [v for k, v in spec.settings.items() if path_of(k) == "stop_at_step"]
    for name, factor in spec.factors.items():
        if spec.place_of(name) == "stop_at_step":
            counts += [factor.value(level) for level in factor.levels]
    numbers = [n for n in counts if isinstance(n, int)]
    return min(numbers) if numbers else None


def _budget(spec: GoalSpec) -> Iterator[Mistake]:
    limit = spec.budget.max_runs
    if any(
        f is not None and f not in spec.factors
        for f in (spec.question.factor, spec.question.across)
    ):
        return  # told already; there is nothing to count
    need = 2 * len(spec.conditions) * spec.seeds.coarse
    if limit is not None and limit < need:
        yield Mistake(
            ("budget", "max_runs"),
            f"max_runs is {limit}, but the first stage alone needs at least {need} runs "
            f"(2 levels x {len(spec.conditions)} condition(s) x {spec.seeds.coarse} seed(s))",
        )


def _cells(spec: GoalSpec) -> Iterator[Mistake]:
    """Values that are fine one by one and not together; looked for only when nothing else is wrong."""
    for condition in spec.conditions:
        for level in spec.levels:
            factors: dict[str, Scalar] = spec.cell(level, condition)
            try:
                cell_settings(spec, factors)
            except ValidationError as error:
                cell = ", ".join(f"{k} = {v}" for k, v in factors.items())
                yield Mistake(
                    ("factors",), f"the cell {cell} can not be made: {error.errors()[0]['msg']}"
                )
