"""Claims beside the answer: the noise floor that every difference has to clear, and how well a minimum is located.

Descriptive: no verdict rests on them, and nothing is corrected for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a3r.report.analysis import Analysis
from a3r.report.claim import Claim, made, place, subject_at
from a3r.report.gains import RunGain
from a3r.report.numbers import level_text, percent, plain, signed
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Cell, ConditionAnalysis, MinimumAnalysis
from a3r.stats.noise import NoiseFloor, noise_floor
from a3r.stats.threshold import LevelSample, Threshold, threshold


def noise_claims(analysis: Analysis, gains: Sequence[RunGain], question: Question) -> list[Claim]:
    """The noise floor between seeds, and that of evaluations of the untrained weights; empty when no cell has two results."""
    cells = [c for a in analysis.conditions for c in a.cells if not c.camps]
    seeds = noise_floor([[g.gain for g in c.gains] for c in cells])
    if seeds is None:
        return []
    start = noise_floor(_starts(gains))
    n = max(2, min((c.fresh.n for c in cells if c.fresh and c.fresh.n >= 2), default=2))
    apart = seeds.difference(n, n, question.confidence)
    text = (
        f"between seeds of one cell the result scatters with a standard deviation of {_spread(seeds)}; means of {n} seeds that "
        f"differ by nothing but their seeds lie up to {plain(apart)} apart in {percent(question.confidence)} of cases"
    )
    if start is not None:
        text += f". Evaluations of the same untrained weights scatter with {_spread(start)}"
    values = {
        "between_seeds": _values(seeds),
        "evaluations_of_version_0": None if start is None else _values(start),
        "explained_by_chance": apart,
        "n": n,
    }
    used = [c for c in cells if len(c.gains) > 1]
    return [made("noise", "noise floor", values, used, text, question)]


def threshold_claims(analysis: MinimumAnalysis, question: Question) -> list[Claim]:
    """One a condition that has fresh seeds at two levels or more."""
    return [
        claim for found in analysis.conditions if (claim := _threshold(found, analysis, question))
    ]


def _threshold(
    found: ConditionAnalysis, analysis: MinimumAnalysis, question: Question
) -> Claim | None:
    cells = [c for c in found.cells if c.fresh is not None and c.fresh.n > 1]
    if len(cells) < 2:
        return None
    fitted = threshold([_sample(c) for c in found.cells if c.gains], question.min_gain)
    located = threshold(
        [_sample(c, fresh=True) for c in cells], question.min_gain, question.confidence
    )
    levels = ", ".join(level_text(c.number) for c in cells)
    criterion = signed(question.min_gain)
    crosses = (
        f"nowhere exceeds {criterion}"
        if fitted.estimate is None
        else f"first exceeds {criterion} at {level_text(fitted.estimate)}"
    )
    text = (
        f"{place(found.condition, analysis.across)}a rising (isotonic) fit of all seeds {crosses}; by the fresh seeds at {levels} "
        f"alone, {percent(question.confidence)} confidence leaves {_answers(located)} (fixed-sequence t tests, if gains do not fall "
        f"as {analysis.factor} grows; descriptive, not part of the verdict)"
    )
    values = {
        "estimate": fitted.estimate,
        "violation": fitted.violation,
        "levels": [c.number for c in cells],
        "candidates": list(located.candidates),
        "above_possible": located.above_possible,
        "below_possible": located.below_possible,
    }
    subject = subject_at(f"threshold of {analysis.factor}", found.condition, analysis.across)
    return made("threshold", subject, values, cells, text, question)


def _answers(located: Threshold) -> str:
    """The levels that can be the minimum, in words."""
    found = [level_text(x) for x in located.candidates]
    if located.below_possible and found:
        found[0] = f"{found[0]} or below"
    if located.above_possible:
        found.append("none of them")
    return " or ".join(found)


def _sample(cell: Cell, *, fresh: bool = False) -> LevelSample:
    values = tuple(g.gain for g in cell.gains if g.fresh or not fresh)
    return LevelSample(float(cell.number), values)


def _starts(gains: Iterable[RunGain]) -> list[list[float]]:
    """Version-0 results of the runs that count, by condition and level: what differs between them is the evaluation's chance."""
    groups: dict[tuple[Scalar, Scalar], list[float]] = {}
    for gain in gains:
        if gain.gain is not None and gain.initial is not None:
            groups.setdefault((gain.condition, gain.level), []).append(gain.initial)
    return list(groups.values())


def _spread(floor: NoiseFloor) -> str:
    return f"{plain(floor.sd)} [{plain(floor.low)}, {plain(floor.high)}] ({floor.df} degrees of freedom in {floor.groups} cells)"


def _values(floor: NoiseFloor) -> dict[str, float]:
    return {
        "sd": floor.sd,
        "low": floor.low,
        "high": floor.high,
        "df": floor.df,
        "cells": floor.groups,
    }
