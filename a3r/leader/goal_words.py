"""A goal said back in sentences, so that a person sees what was understood."""

from __future__ import annotations

from pydantic import JsonValue

from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.report.numbers import listed

REVIEWS = {
    "stage": "a person approves each stage's blueprints before they run",
    "all": "a person approves each stage's blueprints, and every later revision of a client",
    "none": "nobody approves blueprints before they run (the report will say so)",
}


def understood(spec: GoalSpec) -> list[str]:
    """The goal in sentences."""
    return [
        f"{asked(spec)}.",
        f"Task {spec.task!r}, model {spec.model!r}, the same settings in every run: {_settings(spec)}.",
        *_named_levels(spec),
        meaning(spec),
        f"Seeds a cell: {spec.seeds.coarse} in the coarse stage, {spec.seeds.refine} when refining, "
        f"{spec.seeds.replicate} fresh ones to confirm.",
        *_extras(spec),
        f"Budget: {budget_text(spec)}; {spec.capacity} run(s) at once; {REVIEWS[spec.review.value]}.",
    ]


def asked(spec: GoalSpec) -> str:
    """The question as one sentence, without its full stop."""
    question, levels = spec.question, listed_levels(spec.levels)
    factor, across = question.factor, question.across
    values = ", ".join(map(str, spec.conditions))
    if question.kind == "interaction" and question.of == "effect":
        return f"Find whether {across} ({values}) changes what {factor} ({levels}) does, each level against {spec.baseline}"
    if question.asks_minimum:
        text = f"Find the smallest {factor} among {levels} that still trains"
        if across is not None:
            text += f", for {across} = {values} each, and whether it changes between them"
        return text
    if question.kind == "best":
        text = f"Find the best {factor} among {levels}"
    else:
        others = [x for x in spec.levels if x != spec.baseline]
        text = f"Compare {factor} = {listed_levels(others)} with {spec.baseline}"
    return text if across is None else f"{text}, for {across} = {values} each"


def meaning(spec: GoalSpec) -> str:
    """What counts as an answer."""
    items, confidence = spec.metric.items, f"{spec.criterion.confidence:.0%}"
    what = (
        f"the gain in {spec.metric.name} ({items} held-out items, final minus version 0)"
        if spec.metric.measure == "gain"
        else f"the final {spec.metric.name} ({items} held-out items)"
    )
    if spec.question.asks_minimum:
        return (
            f'"Trains" means: on fresh seeds, {what} has a {confidence} t interval whose lower bound is above '
            f"{spec.criterion.min_gain:g}, and a one-sided test that holds after Holm's correction over every test of the "
            "campaign, in both directions."
        )
    text = (
        f"Differs means: on fresh seeds, the difference in {what}, taken seed by seed, has a {confidence} t interval on one "
        "side of zero, and a test that holds after Holm's correction over every comparison of the campaign."
    )
    if spec.smallest_effect is None:
        return text
    return f"{text} Equivalent means: both one-sided tests against {spec.smallest_effect:g} hold after the same correction."


def listed_levels(levels: tuple[Scalar, ...] | list[Scalar]) -> str:
    """``1, 2 and 4``; a long list of numbers is told by its ends."""
    if len(levels) > 12:
        return f"{levels[0]}, {levels[1]}, ... {levels[-1]} ({len(levels)} levels)"
    return ", ".join(map(str, levels))


def _settings(spec: GoalSpec) -> str:
    return ", ".join(f"{k} = {v}" for k, v in spec.settings.items()) or "none"


def _named_levels(spec: GoalSpec) -> list[str]:
    """What the names of levels stand for."""
    out: list[str] = []
    for name, factor in spec.factors.items():
        if factor.values is not None:
            told = "; ".join(f"{x} is {_value_text(factor.value(x))}" for x in factor.levels)
            out.append(f"Levels of {name}: {told}.")
    return out


def _value_text(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v}" for k, v in value.items())
    return str(value)


def _extras(spec: GoalSpec) -> list[str]:
    out: list[str] = []
    if spec.evaluations:
        steps = listed([str(k) for k in spec.evaluations])
        out.append(
            f"Further held-out rounds after step {steps}; they are shown, nothing is decided by them."
        )
    for rule in spec.stop_rules:
        limit = "" if rule.when == "not_finite" else f" {rule.value:g}"
        does = "ends early, and is still evaluated" if rule.outcome == "stop" else "fails"
        out.append(
            f"A run {does} when {rule.metric} is {rule.when.replace('_', ' ')}{limit} in {rule.steps} steps in a row."
        )
    if spec.code:
        out.append(f"Your code in {spec.code!r} is read and never changed.")
    if spec.reference:
        out.append(f"To be followed: {listed([repr(r) for r in spec.reference])}.")
    if spec.write_to:
        out.append(
            f"Written code is also put into {spec.write_to!r}, and nowhere else outside the workspace."
        )
    if spec.python:
        out.append(f"The client's processes run with {spec.python!r}.")
    out += [f"Demand in words: {text}" for text in spec.constraints]
    return out


def budget_text(spec: GoalSpec) -> str:
    """Every limit of the budget."""
    budget = spec.budget
    parts = [f"at most {budget.max_stages} stages"]
    if budget.max_runs is not None:
        parts.append(f"{budget.max_runs} runs")
    if budget.wall_clock_min is not None:
        parts.append(f"{budget.wall_clock_min:g} minutes of work")
    if budget.gpu_hours is not None:
        parts.append(f"{budget.gpu_hours:g} GPU hours")
    if budget.llm_usd is not None:
        parts.append(f"USD {budget.llm_usd:g} for the language model")
    if budget.llm_tokens is not None:
        parts.append(f"{budget.llm_tokens:,} tokens of the language model")
    if budget.llm_calls is not None:
        parts.append(f"{budget.llm_calls} calls of the language model")
    return ", ".join(parts)
