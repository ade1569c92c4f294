"""Gains gathered into cells, with intervals, camps, and - for a minimum - the Holm-adjusted verdicts on fresh seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from a3r.report.family import adjusted
from a3r.report.gains import RunGain
from a3r.report.numbers import signed
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Bounds, Cell, SeedGain, Verdict
from a3r.stats.intervals import mean, mean_interval
from a3r.stats.modes import Modes, find_modes, noise_of_others
from a3r.stats.tests import t_test_greater, t_test_less


def analyse_cells(gains: Sequence[RunGain], question: Question) -> list[Cell]:
    """Cells of the question's conditions with planned runs, by condition in the goal's order, then level in the grid's."""
    members: dict[tuple[Scalar, Scalar], list[RunGain]] = {}
    for gain in gains:
        if gain.level is not None and gain.condition in question.conditions:
            members.setdefault((gain.condition, gain.level), []).append(gain)
    cells = [
        _cell(condition, level, members[condition, level], question)
        for condition in question.conditions
        for level in _ordered([x for other, x in members if other == condition], question)
    ]
    cells = _with_camps(cells, question)
    return _with_family(cells, question) if question.asks_minimum else cells


def bounds(values: Sequence[float], confidence: float) -> Bounds | None:
    """The t interval of the mean; None for no values."""
    if not values:
        return None
    found = mean_interval(values, confidence)
    return Bounds(low=found.low, mean=found.mean, high=found.high, n=found.n, sd=found.sd)


def _ordered(levels: list[Scalar], question: Question) -> list[Scalar]:
    """As the grid has them; levels outside of it (a planner may look further) behind it, as they were planned."""
    grid = [x for x in question.levels if x in levels]
    out = [next(x for x in levels if x == known) for known in grid]
    out += [x for x in levels if x not in grid]
    if question.asks_minimum:
        return sorted(out, key=lambda x: x if isinstance(x, (int, float)) else 0.0)
    return out


def _cell(condition: Scalar, level: Scalar, runs: list[RunGain], question: Question) -> Cell:
    gains = tuple(
        SeedGain(
            run_id=r.run_id,
            seed=r.seed,
            gain=r.gain,
            fresh=r.fresh,
            stage=r.stage,
            client=r.client,
            client_origin=r.client_origin,
        )
        for r in sorted(runs, key=lambda r: (r.stage, r.seed))
        if r.gain is not None
    )
    overall = bounds([g.gain for g in gains], question.confidence)
    contests = dict(sorted(Counter(r.stage for r in runs if r.fresh).items()))
    fresh = [g.gain for g in gains if g.fresh]
    if question.asks_minimum:
        decides = deciding(gains, contests)
        fresh = [g.gain for g in gains if g.fresh and g.stage == decides]
    judged = bool(fresh) and question.asks_minimum
    return Cell(
        condition=condition,
        level=level,
        planned=len(runs),
        gains=gains,
        all_seeds=overall,
        lean=overall.mean > question.min_gain if overall else None,
        fresh_planned=sum(r.fresh for r in runs),
        contests=contests,
        fresh=bounds(fresh, question.confidence),
        p=t_test_greater(fresh, question.min_gain) if judged else None,
        p_adjusted=None,
        p_not=t_test_less(fresh, question.min_gain) if judged else None,
        p_not_adjusted=None,
        verdict=Verdict.NOT_REPLICATED if question.asks_minimum else Verdict.MEASURED,
    )


def deciding(gains: Sequence[SeedGain], contests: Mapping[int, int]) -> int:
    """The stage whose fresh seeds judge a cell: the first, for a second time would be asking until it fits.

    A later one only where the first left fewer than two results. 0 when no stage planned any.
    """
    counts = {stage: sum(g.fresh and g.stage == stage for g in gains) for stage in contests}
    return next((s for s in contests if counts[s] >= 2), next(iter(contests), 0))


# --- camps -----------------------------------------------------------------------------------------------------


def _with_camps(cells: list[Cell], question: Question) -> list[Cell]:
    """Name the cells whose seeds fall into two camps; the noise of the other cells says what a gap is."""
    samples = [[g.gain for g in cell.gains] for cell in cells]
    smallest = question.smallest_effect or question.min_gain
    out: list[Cell] = []
    for index, cell in enumerate(cells):
        found = find_modes(samples[index], noise_of_others(samples, index), smallest)
        out.append(cell.model_copy(update={"camps": _camps_text(found)}) if found.bimodal else cell)
    return out


def _camps_text(found: Modes) -> str:
    low, high = (f"{len(c)} around {signed(mean(c))}" for c in (found.low, found.high))
    return f"{low}, {high}"


# --- verdicts of a minimum -------------------------------------------------------------------------------------


def _with_family(cells: list[Cell], question: Question) -> list[Cell]:
    """Adjust over one family: both directions of every cell that planned fresh seeds.

    A cell without enough results counts as p = 1 in both, so it is not forgotten.
    """
    family = [c for c in cells if c.contests]
    both = [(deciding(c.gains, c.contests), p) for c in family for p in (c.p, c.p_not)]
    found = iter(adjusted(both))
    out: list[Cell] = []
    for cell in cells:
        yes, no = (next(found), next(found)) if cell.contests else (None, None)
        update = {
            "p_adjusted": yes,
            "p_not_adjusted": no,
            "verdict": _verdict(cell, yes, no, question),
        }
        out.append(cell.model_copy(update=update))
    return out


def _verdict(cell: Cell, yes: float | None, no: float | None, question: Question) -> Verdict:
    fresh = cell.fresh
    if fresh is None or fresh.low is None or fresh.high is None or yes is None or no is None:
        return Verdict.NOT_REPLICATED
    if fresh.low > question.min_gain and yes < question.alpha:
        return Verdict.TRAINS
    if fresh.high < question.min_gain and no < question.alpha:
        return Verdict.SHOWN_NOT
    return Verdict.NOT_SHOWN
