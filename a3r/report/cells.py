"""Gains gathered into cells, with intervals, and the Holm-adjusted verdicts on fresh seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from a3r.report.gains import RunGain
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Bounds, Cell, SeedGain, Verdict
from a3r.stats.intervals import mean_interval
from a3r.stats.tests import holm, t_test_greater, t_test_less


def analyse_cells(gains: Sequence[RunGain], question: Question) -> list[Cell]:
    """Cells of the question's conditions with planned runs, by condition in the goal's order, then level."""
    members: dict[tuple[Scalar, float], list[RunGain]] = {}
    for gain in gains:
        if gain.level is not None and gain.condition in question.conditions:
            members.setdefault((gain.condition, gain.level), []).append(gain)
    cells = [
        _cell(condition, level, members[condition, level], question)
        for condition in question.conditions
        for level in sorted(level for other, level in members if other == condition)
    ]
    return _with_family(cells, question)


def bounds(values: Sequence[float], confidence: float) -> Bounds | None:
    """The t interval of the mean; None for no values."""
    if not values:
        return None
    found = mean_interval(values, confidence)
    return Bounds(low=found.low, mean=found.mean, high=found.high, n=found.n, sd=found.sd)


def _cell(condition: Scalar, level: float, runs: list[RunGain], question: Question) -> Cell:
    gains = tuple(
        SeedGain(run_id=r.run_id, seed=r.seed, gain=r.gain, fresh=r.fresh)
        for r in sorted(runs, key=lambda r: (r.stage, r.seed))
        if r.gain is not None
    )
    overall = bounds([g.gain for g in gains], question.confidence)
    fresh = [g.gain for g in gains if g.fresh]
    return Cell(
        condition=condition,
        level=level,
        planned=len(runs),
        gains=gains,
        all_seeds=overall,
        lean=overall.mean > question.min_gain if overall else None,
        fresh_planned=sum(r.fresh for r in runs),
        fresh=bounds(fresh, question.confidence),
        p=t_test_greater(fresh, question.min_gain) if fresh else None,
        p_adjusted=None,
        p_not=t_test_less(fresh, question.min_gain) if fresh else None,
        p_not_adjusted=None,
        verdict=Verdict.NOT_REPLICATED,
    )


def _with_family(cells: list[Cell], question: Question) -> list[Cell]:
    """Adjust over every cell that planned fresh seeds; one without enough results counts as p = 1, so it is not forgotten."""
    greater, less = _adjusted(cells, lambda c: c.p), _adjusted(cells, lambda c: c.p_not)
    return [
        cell.model_copy(
            update={
                "p_adjusted": yes,
                "p_not_adjusted": no,
                "verdict": _verdict(cell, yes, no, question),
            }
        )
        for cell, yes, no in zip(cells, greater, less, strict=True)
    ]


def _adjusted(cells: list[Cell], p_of: Callable[[Cell], float | None]) -> list[float | None]:
    family = [c for c in cells if c.fresh_planned]
    raw = [p_of(c) for c in family]
    adjusted = dict(
        zip(
            [(c.condition, c.level) for c in family],
            holm([1.0 if p is None else p for p in raw]),
            strict=True,
        )
    )
    return [adjusted[c.condition, c.level] if p_of(c) is not None else None for c in cells]


def _verdict(cell: Cell, yes: float | None, no: float | None, question: Question) -> Verdict:
    fresh = cell.fresh
    if fresh is None or fresh.low is None or fresh.high is None or yes is None or no is None:
        return Verdict.NOT_REPLICATED
    if fresh.low > question.min_gain and yes < question.alpha:
        return Verdict.TRAINS
    if fresh.high < question.min_gain and no < question.alpha:
        return Verdict.SHOWN_NOT
    return Verdict.NOT_SHOWN
