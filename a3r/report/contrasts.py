"""Differences between cells on fresh seeds, paired by seed, and their verdicts over one Holm family. Pure.

Rules (the source of each formula is named in ``a3r.stats``):

- a difference is taken seed by seed over the seeds that one replicate stage planned fresh in every cell it needs;
- it is *higher* (*lower*) when its t interval lies above (below) 0 and the one-sided p is below ``1 - confidence`` after Holm's
  correction over one family (``a3r.report.family``): both directions, and the equivalence test when the goal names a smallest
  effect, of every comparison that was planned. One that got too few results counts as p = 1;
- it is *equivalent* when the two one-sided tests against the smallest effect hold after the same correction;
- everything else is *not shown to differ*, which is no finding of equality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from a3r.report.contrast_results import Contrast, Interaction, Judged, Shown
from a3r.report.family import adjusted
from a3r.report.question import Question
from a3r.report.results import Bounds, Cell
from a3r.stats.equivalence import tost_equivalence
from a3r.stats.paired import paired_difference

_T = TypeVar("_T", bound=Judged)


def contrast(level: Cell, against: Cell, question: Question, *, tested: bool = True) -> Contrast:
    """``level`` minus ``against``; ``tested=False`` describes it only."""
    cells, contest = [level, against], _contest([level, against])
    values = [_by_seed(c, contest) for c in cells]
    return Contrast(
        **_judged(values[0], values[1], cells, contest, question, tested=tested),
        first_look=_minus(_mean(level), _mean(against)),
        condition=level.condition,
        level=level.level,
        against=against.level,
    )


def interaction(
    here: tuple[Cell, Cell], there: tuple[Cell, Cell], question: Question
) -> Interaction:
    """(level minus baseline) of ``here`` minus the same of ``there``; each pair is (level, baseline)."""
    cells = [*here, *there]
    contest = _contest(cells)
    effects = [_effect_by_seed(level, baseline, contest) for level, baseline in (here, there)]
    looks = [_minus(_mean(level), _mean(baseline)) for level, baseline in (here, there)]
    return Interaction(
        **_judged(effects[0], effects[1], cells, contest, question, tested=True),
        first_look=_minus(looks[0], looks[1]),
        level=here[0].level,
        against=here[1].level,
        condition=here[0].condition,
        other=there[0].condition,
    )


# --- verdicts over the family ----------------------------------------------------------------------------------


def with_family(judged: Sequence[_T], question: Question) -> tuple[list[_T], int]:
    """The same with adjusted p-values and verdicts, and the number of tests. ``judged`` is everything that the campaign compares."""
    tests = [test for found in judged for test in _tests(found, question)]
    values = iter(adjusted(tests))
    out: list[_T] = []
    for found in judged:
        own = [next(values) for _ in _tests(found, question)]
        out.append(_verdict(found, own, question) if own else found)
    return out, len(tests)


def _tests(found: Judged, question: Question) -> list[tuple[int, float | None]]:
    if found.contest is None or found.verdict is Shown.MEASURED:
        return []
    raw = [found.p_higher, found.p_lower]
    if question.smallest_effect is not None:
        raw.append(found.p_equivalent)
    return [(found.contest, p) for p in raw]


def _verdict(found: _T, values: list[float | None], question: Question) -> _T:
    """``values``: adjusted p of higher, lower and, when it is asked, equivalent."""
    higher, lower, *rest = values
    if higher is None or lower is None:
        return found
    equal = rest[0] if rest else None
    negligible = equal is not None and equal < question.alpha
    bounds, verdict = found.difference, Shown.NOT_SHOWN
    if bounds is not None and bounds.low is not None and bounds.high is not None:
        if bounds.low > 0 and higher < question.alpha:
            verdict = Shown.HIGHER
        elif bounds.high < 0 and lower < question.alpha:
            verdict = Shown.LOWER
    if verdict is Shown.NOT_SHOWN and negligible:
        verdict = Shown.EQUIVALENT
    return found.model_copy(
        update={
            "p_higher_adjusted": higher,
            "p_lower_adjusted": lower,
            "p_equivalent_adjusted": equal,
            "negligible": negligible,
            "verdict": verdict,
        }
    )


# --- one difference --------------------------------------------------------------------------------------------


def _contest(cells: Sequence[Cell]) -> int | None:
    """The stage whose seeds decide: the first that planned all cells, or the next one where it left fewer than two results."""
    common = [s for s in cells[0].contests if all(s in c.contests for c in cells)]
    for stage in common:
        seeds = [_by_seed(c, stage) for c in cells]
        if sum(all(seed in own for own in seeds) for seed in seeds[0]) >= 2:
            return stage
    return common[0] if common else None


def _judged(
    first: Mapping[int, float],
    second: Mapping[int, float],
    cells: Sequence[Cell],
    contest: int | None,
    question: Question,
    *,
    tested: bool,
) -> dict[str, Any]:
    """Fields of ``Judged`` before any correction."""
    found = paired_difference(first, second, question.confidence)
    margin, equal = question.smallest_effect, None
    if tested and margin is not None and found.n >= 2:
        equal = tost_equivalence(found.differences, margin, question.alpha).p
    with_result = {seed for c in cells for seed in _by_seed(c, contest)}
    spread = {"low": found.low, "high": found.high, "n": found.n, "sd": found.sd}
    mean = found.difference
    return {
        "seeds": found.seeds,
        "alone": tuple(sorted(with_result - set(found.seeds))),
        "contest": contest,
        "planned": 0 if contest is None else min(c.contests[contest] for c in cells),
        "difference": None if mean is None else Bounds.model_validate({"mean": mean, **spread}),
        "p_higher": found.p_greater if tested else None,
        "p_higher_adjusted": None,
        "p_lower": found.p_less if tested else None,
        "p_lower_adjusted": None,
        "p_equivalent": equal,
        "p_equivalent_adjusted": None,
        "negligible": False,
        "verdict": Shown.NOT_REPLICATED if tested else Shown.MEASURED,
    }


def _by_seed(cell: Cell, contest: int | None) -> dict[int, float]:
    return {g.seed: g.gain for g in cell.gains if g.fresh and g.stage == contest}


def _effect_by_seed(level: Cell, baseline: Cell, contest: int | None) -> dict[int, float]:
    above, below = _by_seed(level, contest), _by_seed(baseline, contest)
    return {seed: above[seed] - below[seed] for seed in above if seed in below}


def _mean(cell: Cell) -> float | None:
    return cell.all_seeds.mean if cell.all_seeds else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
