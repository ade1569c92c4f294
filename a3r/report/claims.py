"""Claims: sentences that state results, each computed from records and rendered whole by code.

A claim carries its values and the runs, rounds and metric that they come from. Nobody writes or edits these sentences.
"""

from __future__ import annotations

from typing import Any

from a3r.report.analysis import Analysis
from a3r.report.claim import Claim, Inputs, Kind, made, measured, place, sentence, subject_at
from a3r.report.contrast_claims import contrast_claims
from a3r.report.gains import RunGain
from a3r.report.numbers import level_text, percent, scalar_text, signed
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
from a3r.report.supporting_claims import noise_claims, threshold_claims

__all__ = ["Claim", "Inputs", "Kind", "compute_claims"]


def compute_claims(analysis: Analysis, gains: list[RunGain], question: Question) -> list[Claim]:
    """All claims in order: the answer, its evidence (differences, replicated cells), denominators, threshold, noise floor."""
    if isinstance(analysis, MinimumAnalysis):
        found = _minimum_claims(analysis, question)
    else:
        found = contrast_claims(analysis, question)
    found.append(_denominators(gains, question))
    if isinstance(analysis, MinimumAnalysis):
        found += threshold_claims(analysis, question)
    found += noise_claims(analysis, gains, question)
    return [c.model_copy(update={"id": f"c{n}"}) for n, c in enumerate(found, start=1)]


def _minimum_claims(analysis: MinimumAnalysis, question: Question) -> list[Claim]:
    """Minimum per condition, shift, differences, replicated cells."""
    out = [_minimum(a, analysis, question) for a in analysis.conditions]
    out.append(_shift(analysis, question))
    out += [_difference(d, analysis, question) for d in analysis.shift.differences]
    out += [
        _cell(c, analysis, question)
        for a in analysis.conditions
        for c in a.cells
        if c.fresh_planned
    ]
    return out


def _minimum(found: ConditionAnalysis, analysis: MinimumAnalysis, question: Question) -> Claim:
    claimed, below = found.cell(found.claimed), found.cell(found.below)
    cells = [c for c in (below, claimed) if c]
    if not cells and found.cells:
        cells = [found.cells[-1]]
    return made(
        "minimum",
        subject_at(analysis.factor, found.condition, analysis.across),
        {
            "status": found.status,
            "claimed": found.claimed,
            "below": found.below,
            "below_verdict": found.below_verdict,
        },
        cells,
        place(found.condition, analysis.across) + _minimum_text(found, analysis, question),
        question,
    )


def _minimum_text(found: ConditionAnalysis, analysis: MinimumAnalysis, question: Question) -> str:
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
    level = level_text(claimed.number)
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
            f"there, {measured(claimed, question)}"
        )
    return (
        f"the smallest {factor} shown to train is {level}: {measured(claimed, question)}. "
        f"The next lower level, {level_text(below.number)}, is {below.verdict}: {measured(below, question)}"
    )


def _cell(cell: Cell, analysis: MinimumAnalysis, question: Question) -> Claim:
    verdict = cell.verdict if cell.verdict is Verdict.TRAINS else f"is {cell.verdict}"
    text = f"{place(cell.condition, analysis.across)}{analysis.factor} {level_text(cell.number)} {verdict}: {measured(cell, question)}"
    return made(
        "cell",
        subject_at(f"{analysis.factor} {level_text(cell.number)}", cell.condition, analysis.across),
        cell.model_dump(mode="json", exclude={"gains", "condition", "level"}),
        [cell],
        text,
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
    return made("shift", subject, values, cells, text, question)


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
    return made("difference", subject, values, cells, text, question)


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
