"""Claims: sentences that state results, each computed from records and rendered whole by code.

A claim carries its values and the runs, rounds and metric that they come from. Nobody writes or edits these sentences.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from a3r.report.gains import RunGain
from a3r.report.numbers import (
    interval,
    level_text,
    p_phrase,
    percent,
    scalar_text,
    signed,
)
from a3r.report.question import Question
from a3r.report.results import (
    Cell,
    ConditionAnalysis,
    LevelDifference,
    MinimumAnalysis,
    Shift,
    Status,
    Verdict,
)

Kind: TypeAlias = Literal["minimum", "cell", "shift", "difference", "denominators"]


class Inputs(BaseModel):
    """What a claim was computed from."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[str, ...]
    rounds: tuple[str, ...] = ("initial", "final")
    metric: str


class Claim(BaseModel):
    """One result sentence with its values."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: Kind
    subject: str
    values: dict[str, Any]
    inputs: Inputs
    text: str


def compute_claims(
    analysis: MinimumAnalysis, gains: list[RunGain], question: Question
) -> list[Claim]:
    """All claims in order: minimum per condition, shift, differences, replicated cells, denominators."""
    made = [_minimum(a, analysis, question) for a in analysis.conditions]
    made.append(_shift(analysis, question))
    made += [_difference(d, analysis, question) for d in analysis.shift.differences]
    made += [
        _cell(c, analysis, question)
        for a in analysis.conditions
        for c in a.cells
        if c.fresh_planned
    ]
    made.append(_denominators(gains, question))
    return [c.model_copy(update={"id": f"c{n}"}) for n, c in enumerate(made, start=1)]


def place(condition: object, analysis: MinimumAnalysis) -> str:
    """``At max_response_tokens 10, `` or nothing when no conditions are compared."""
    if analysis.across is None:
        return ""
    return f"At {analysis.across} {scalar_text(condition)}, "  # pyright: ignore[reportArgumentType]


def sentence(text: str) -> str:
    """First letter in upper case, one full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def measured(cell: Cell, analysis: MinimumAnalysis) -> str:
    """Direction, size, interval, n and adjusted p of a cell's fresh seeds, or that there are too few."""
    found = cell.fresh
    if found is None or found.low is None or found.high is None:
        count = found.n if found else 0
        return f"{count} of {cell.fresh_planned} fresh seeds gave a result, too few for an interval"
    word = "rises" if found.low > 0 else "falls" if found.high < 0 else "changes"
    side, p = "above", cell.p_adjusted
    if cell.verdict is Verdict.SHOWN_NOT:
        side, p = "below", cell.p_not_adjusted
    return (
        f"held-out reward {word} by {interval(found)} (n = {found.n} fresh seeds, {percent(analysis.confidence)} t interval; "
        f"gain {side} {signed(analysis.min_gain)}: Holm-adjusted {p_phrase(p)})"
    )


def _minimum(found: ConditionAnalysis, analysis: MinimumAnalysis, question: Question) -> Claim:
    claimed, below = found.cell(found.claimed), found.cell(found.below)
    cells = [c for c in (below, claimed) if c]
    if not cells and found.cells:
        cells = [found.cells[-1]]
    return _claim(
        "minimum",
        f"{analysis.factor} at {scalar_text(found.condition)}",
        {
            "status": found.status,
            "claimed": found.claimed,
            "below": found.below,
            "below_verdict": found.below_verdict,
        },
        cells,
        sentence(place(found.condition, analysis) + _minimum_text(found, analysis)),
        question,
    )


def _minimum_text(found: ConditionAnalysis, analysis: MinimumAnalysis) -> str:
    factor = analysis.factor
    claimed, below = found.cell(found.claimed), found.cell(found.below)
    if found.status is Status.CENSORED_HIGH:
        return (
            f"no {factor} of the grid up to {level_text(analysis.levels[-1])} is shown to train: "
            f"the minimum, if there is one, is above the grid or needs more seeds to be seen ({found.reason})"
        )
    if found.status is Status.NOT_CONFIRMED:
        return f"no minimum of {factor} is confirmed: {found.reason}"
    if claimed is None:
        return f"the minimum of {factor} is not resolved: {found.reason}"
    level = level_text(claimed.level)
    if found.status is Status.UNRESOLVED and not found.monotone:
        return (
            f"the minimum of {factor} is not resolved; the smallest level from which every tested one says yes is {level}, "
            f"but {found.reason}"
        )
    if found.status is Status.UNRESOLVED:
        return (
            f"the minimum of {factor} is not resolved; the smallest level that says yes so far is {level}, "
            f"but {found.reason}"
        )
    if found.status is Status.CENSORED_LOW or below is None:
        return (
            f"the smallest {factor} that trains is at or below {level}, the lowest level of the grid: "
            f"there, {measured(claimed, analysis)}"
        )
    return (
        f"the smallest {factor} shown to train is {level}: {measured(claimed, analysis)}. "
        f"The next lower level, {level_text(below.level)}, is {below.verdict}: {measured(below, analysis)}"
    )


def _cell(cell: Cell, analysis: MinimumAnalysis, question: Question) -> Claim:
    verdict = cell.verdict if cell.verdict is Verdict.TRAINS else f"is {cell.verdict}"
    text = f"{place(cell.condition, analysis)}{analysis.factor} {level_text(cell.level)} {verdict}: {measured(cell, analysis)}"
    return _claim(
        "cell",
        f"{analysis.factor} {level_text(cell.level)} at {scalar_text(cell.condition)}",
        cell.model_dump(mode="json", exclude={"gains", "condition", "level"}),
        [cell],
        sentence(text),
        question,
    )


def _shift(analysis: MinimumAnalysis, question: Question) -> Claim:
    found = analysis.shift
    subject = f"shift of the minimum across {analysis.across}"
    if found.status is Shift.SHOWN:
        text = f"that {analysis.across} changes the minimum of {analysis.factor} is shown: {found.reason}, each on fresh seeds"
    elif found.status is Shift.NOT_SHOWN:
        text = (
            f"that {analysis.across} changes the minimum of {analysis.factor} is not shown: {found.reason}; "
            "this does not show that the minima are equal"
        )
    else:
        text = f"whether something shifts the minimum was not asked: {found.reason}"
    cells = [c for a in analysis.conditions for c in a.cells if c.level == found.level]
    values = found.model_dump(mode="json", exclude={"reason", "differences"})
    return _claim("shift", subject, values, cells, sentence(text), question)


def _difference(found: LevelDifference, analysis: MinimumAnalysis, question: Question) -> Claim:
    cells = [
        c
        for a in analysis.conditions
        for c in a.cells
        if c.level == found.level and c.condition in (found.first, found.second)
    ]
    bounds = "n/a" if found.low is None else f"[{signed(found.low)}, {signed(found.high)}]"
    text = (
        f"at {analysis.factor} {level_text(found.level)}, the mean gain at {analysis.across} {scalar_text(found.first)} minus that at "
        f"{scalar_text(found.second)} is {signed(found.difference)} {bounds} "
        f"({percent(analysis.confidence)} Welch interval, fresh seeds; descriptive, not corrected, not part of the verdict)"
    )
    subject = f"{scalar_text(found.first)} against {scalar_text(found.second)} at {level_text(found.level)}"
    values = found.model_dump(mode="json")
    return _claim("difference", subject, values, cells, sentence(text), question)


def _denominators(gains: list[RunGain], question: Question) -> Claim:
    counts = {
        state: sum(g.state == state for g in gains)
        for state in ("succeeded", "failed", "cancelled", "not run")
    }
    used = sum(g.gain is not None for g in gains)
    text = (
        f"of {len(gains)} planned runs {counts['succeeded']} succeeded, {counts['failed']} failed, "
        f"{counts['cancelled']} were cancelled and {counts['not run']} were not run; "
        f"{used} of the {counts['succeeded']} that succeeded enter the results"
    )
    values: dict[str, Any] = {"planned": len(gains), **counts, "used": used}
    inputs = Inputs(runs=tuple(g.run_id for g in gains if g.run_id), rounds=(), metric="state")
    return Claim(
        id="",
        kind="denominators",
        subject="runs",
        values=values,
        inputs=inputs,
        text=sentence(text),
    )


def _claim(
    kind: Kind,
    subject: str,
    values: dict[str, Any],
    cells: list[Cell],
    text: str,
    question: Question,
) -> Claim:
    runs = tuple(g.run_id for c in cells for g in c.gains)
    plain_values = {
        k: (str(v) if isinstance(v, Verdict | Status | Shift) else v) for k, v in values.items()
    }
    inputs = Inputs(runs=runs, metric=question.metric)
    return Claim(id="", kind=kind, subject=subject, values=plain_values, inputs=inputs, text=text)
