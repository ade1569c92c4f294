"""Differences between cells on fresh seeds, paired by seed, and their verdicts over one Holm family. Pure.

Rules (the source of each formula is named in ``a3r.stats``):

- a difference is taken seed by seed over the seeds that a replicate stage planned fresh in every cell it needs;
- it is *higher* (*lower*) when its t interval lies above (below) 0 and the one-sided p is below ``1 - confidence`` after Holm's
  correction over one family: both directions, and the equivalence test when the goal names a smallest effect, of every
  comparison that was planned. One that got too few results counts as p = 1;
- it is *equivalent* when the two one-sided tests against the smallest effect hold after the same correction;
- everything else is *not shown to differ*, which is no finding of equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from a3r.report.contrast_results import Contrast, Interaction, Judged, Shown
from a3r.report.question import Question
from a3r.report.results import Bounds, Cell
from a3r.stats.equivalence import tost_equivalence
from a3r.stats.paired import paired_difference
from a3r.stats.tests import holm

_T = TypeVar("_T", bound=Judged)


def contrast(level: Cell, against: Cell, question: Question, *, tested: bool = True) -> Contrast:
    """``level`` minus ``against``; ``tested=False`` describes it only."""
    found = _judged(_by_seed(level), _by_seed(against), [level, against], question, tested=tested)
    return Contrast(
        **found,
        first_look=_minus(_mean(level), _mean(against)),
        condition=level.condition,
        level=level.level,
        against=against.level,
    )


def interaction(
    here: tuple[Cell, Cell], there: tuple[Cell, Cell], question: Question
) -> Interaction:
    """(level minus baseline) of ``here`` minus the same of ``there``; each pair is (level, baseline)."""
    found = _judged(
        _effect_by_seed(*here), _effect_by_seed(*there), [*here, *there], question, tested=True
    )
    looks = [_minus(_mean(level), _mean(baseline)) for level, baseline in (here, there)]
    return Interaction(
        **found,
        first_look=_minus(looks[0], looks[1]),
        level=here[0].level,
        against=here[1].level,
        condition=here[0].condition,
        other=there[0].condition,
    )


def with_family(judged: Sequence[_T], question: Question, tests: Sequence[float]) -> list[_T]:
    """The same with adjusted p-values and verdicts; ``tests`` are ``family_of`` of everything that the campaign tests."""
    adjusted = dict(
        zip(tests, holm(tests), strict=True)
    )  # equal raw p-values share one adjusted value
    return [_verdict(found, adjusted, question) for found in judged]


def family_of(judged: Sequence[Judged], question: Question) -> list[float]:
    """Raw p-values of the family: planned comparisons only, a missing result counts as 1."""
    return [1.0 if p is None else p for found in judged for p in _tests(found, question)]


def _tests(found: Judged, question: Question) -> Iterator[float | None]:
    if not found.planned or found.verdict is Shown.MEASURED:
        return
    yield found.p_higher
    yield found.p_lower
    if question.smallest_effect is not None:
        yield found.p_equivalent


def _verdict(found: _T, adjusted: Mapping[float, float], question: Question) -> _T:
    if found.verdict is Shown.MEASURED or found.p_higher is None or found.p_lower is None:
        return found
    higher, lower = adjusted[found.p_higher], adjusted[found.p_lower]
    equal = None if found.p_equivalent is None else adjusted[found.p_equivalent]
    negligible = equal is not None and equal < question.alpha
    bounds, verdict = found.difference, Shown.NOT_SHOWN
    if bounds is not None and bounds.low is not None and bounds.low > 0 and higher < question.alpha:
        verdict = Shown.HIGHER
    elif (
        bounds is not None
        and bounds.high is not None
        and bounds.high < 0
        and lower < question.alpha
    ):
        verdict = Shown.LOWER
    elif negligible:
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


def _judged(
    first: Mapping[int, float],
    second: Mapping[int, float],
    cells: Sequence[Cell],
    question: Question,
    *,
    tested: bool,
) -> dict[str, Any]:
    """Fields of ``Judged`` before any correction."""
    found = paired_difference(first, second, question.confidence)
    planned = min(c.fresh_planned for c in cells)
    margin = question.smallest_effect
    equal = None
    if tested and margin is not None and found.n >= 2:
        equal = tost_equivalence(found.differences, margin, question.alpha).p
    with_result = {g.seed for c in cells for g in c.gains if g.fresh}
    verdict = Shown.NOT_REPLICATED if tested else Shown.MEASURED
    return {
        "seeds": found.seeds,
        "alone": tuple(sorted(with_result - set(found.seeds))),
        "planned": planned,
        "difference": None
        if found.difference is None
        else Bounds(low=found.low, mean=found.difference, high=found.high, n=found.n, sd=found.sd),
        "p_higher": found.p_greater if tested else None,
        "p_higher_adjusted": None,
        "p_lower": found.p_less if tested else None,
        "p_lower_adjusted": None,
        "p_equivalent": equal,
        "p_equivalent_adjusted": None,
        "negligible": False,
        "verdict": verdict,
    }


def _by_seed(cell: Cell) -> dict[int, float]:
    return {g.seed: g.gain for g in cell.gains if g.fresh}


def _effect_by_seed(level: Cell, baseline: Cell) -> dict[int, float]:
    above, below = _by_seed(level), _by_seed(baseline)
    return {seed: above[seed] - below[seed] for seed in above if seed in below}


def _mean(cell: Cell) -> float | None:
    return cell.all_seeds.mean if cell.all_seeds else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
