"""Best level, comparison and interaction, answered from records alone.

Planner and report both come here through ``a3r.report.analysis``. Pure. What a comparison must show is in ``contrasts``; here is
what comparisons add up to:

- the *leader* is the level with the highest mean on fresh seeds. It is *best* when it is shown above every other level that got
  fresh seeds and no level that got none looked better in the first look; levels put aside are named with the answer;
- it is *tied* when it is shown to be equivalent to those that it is not shown above;
- a comparison holds each level against the baseline;
- an *interaction* is the difference between two conditions of what a level changes against the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from a3r.report.contrast_results import (
    ConditionContrasts,
    Contrast,
    ContrastAnalysis,
    Interaction,
    Shown,
)
from a3r.report.contrasts import contrast, interaction, with_family
from a3r.report.numbers import listed, scalar_text, signed
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Cell, Status

_WEAKEST = (Status.UNRESOLVED, Status.NOT_CONFIRMED, Status.TIED, Status.CONFIRMED)


def analyse_contrasts(cells: Sequence[Cell], question: Question) -> ContrastAnalysis:
    """The answer from the campaign's cells (``analyse_cells``). Conditions without any run are there, empty."""
    by_condition = {
        value: [c for c in cells if c.condition == value] for value in question.conditions
    }
    raw = {value: _contrasts(found, question) for value, found in by_condition.items()}
    crossed = _interactions(by_condition, question)
    everything: list[Contrast | Interaction] = [*(c for found in raw.values() for c in found)]
    judged, family = with_family([*everything, *crossed], question)
    contrasts = [c for c in judged if isinstance(c, Contrast)]
    interactions = tuple(c for c in judged if isinstance(c, Interaction))
    conditions = tuple(
        _condition(
            value, by_condition[value], [c for c in contrasts if c.condition == value], question
        )
        for value in question.conditions
    )
    if question.kind == "interaction":
        status, reason = _interaction_status(interactions, question)
    else:
        status = min((c.status for c in conditions), key=_WEAKEST.index)
        reason = next(c.reason for c in conditions if c.status is status)
    return ContrastAnalysis(
        kind=question.kind,
        factor=question.factor,
        across=question.across,
        measure=question.measure,
        baseline=question.baseline,
        smallest_effect=question.smallest_effect,
        min_gain=question.min_gain,
        confidence=question.confidence,
        levels=question.levels,
        conditions=conditions,
        interactions=interactions,
        status=status,
        reason=reason,
        family=family,
    )


def _contrasts(cells: Sequence[Cell], question: Question) -> list[Contrast]:
    if question.kind == "best":
        leader = leader_of([c for c in cells if c.gains])
        # The leader comes first, so that its differences read as what it is ahead by.
        fresh = sorted((c for c in cells if c.fresh_planned), key=lambda c: c is not leader)
        return [contrast(a, b, question) for a, b in combinations(fresh, 2)]
    baseline = next((c for c in cells if c.level == question.baseline), None)
    if baseline is None:
        return []
    tested = question.kind == "comparison"
    others = [c for c in cells if c is not baseline]
    return [contrast(c, baseline, question, tested=tested) for c in others]


def _interactions(by_condition: dict[Scalar, list[Cell]], question: Question) -> list[Interaction]:
    """Every level but the baseline, each further condition against the first, where all four cells were planned."""
    if question.kind != "interaction":
        return []
    first, *others = question.conditions
    known = {(c.condition, c.level): c for found in by_condition.values() for c in found}
    out: list[Interaction] = []
    for other in others:
        for level in question.levels:
            four = [
                known.get((condition, x))
                for condition in (other, first)
                for x in (level, question.baseline)
            ]
            there = [c for c in four if c is not None]
            if level != question.baseline and len(there) == 4:
                out.append(interaction((there[0], there[1]), (there[2], there[3]), question))
    return out


def _condition(
    value: Scalar, cells: list[Cell], contrasts: list[Contrast], question: Question
) -> ConditionContrasts:
    with_results = [c for c in cells if c.gains]
    leader = leader_of(with_results) if question.kind == "best" else _baseline(cells, question)
    challengers = _challengers(with_results, leader) if question.kind == "best" else []
    if question.kind == "best":
        status, reason = _best_status(leader, with_results, challengers, contrasts)
    elif question.kind == "comparison":
        status, reason = _comparison_status(leader, contrasts, question)
    else:
        status, reason = Status.UNRESOLVED, "the interaction is judged between conditions"
    has = [c.level for c in with_results]
    return ConditionContrasts(
        condition=value,
        cells=tuple(cells),
        contrasts=tuple(contrasts),
        leader=None if leader is None else leader.level,
        challengers=tuple(c.level for c in challengers),
        aside=tuple(c.level for c in with_results if not c.fresh_planned),
        untested=tuple(x for x in question.levels if x not in has),
        status=status,
        reason=reason,
    )


def leader_of(cells: Sequence[Cell]) -> Cell | None:
    """Highest mean on fresh seeds; before there are any, over all seeds. The first of the grid when equal; None for no results."""
    fresh = [(c, c.fresh.mean) for c in cells if c.fresh is not None and c.replicated]
    looks = fresh or [(c, c.all_seeds.mean) for c in cells if c.all_seeds is not None]
    return max(looks, key=lambda pair: pair[1])[0] if looks else None


def _baseline(cells: list[Cell], question: Question) -> Cell | None:
    return next((c for c in cells if c.level == question.baseline and c.gains), None)


def _challengers(cells: list[Cell], leader: Cell | None) -> list[Cell]:
    if leader is None or leader.fresh is None or not leader.replicated:
        return []
    mark = leader.fresh.mean
    return [
        c
        for c in cells
        if not c.fresh_planned and c.all_seeds is not None and c.all_seeds.mean > mark
    ]


# --- statuses --------------------------------------------------------------------------------------------------


def _best_status(
    leader: Cell | None, cells: list[Cell], challengers: list[Cell], contrasts: list[Contrast]
) -> tuple[Status, str]:
    if leader is None:
        return Status.UNRESOLVED, "no run has a result"
    name = f"level {scalar_text(leader.level)}"
    if len(cells) < 2:
        return Status.UNRESOLVED, f"only {name} has a result: there is nothing to compare it with"
    against = {
        (c.against if c.level == leader.level else c.level): _seen_from(c, leader.level)
        for c in contrasts
        if leader.level in (c.level, c.against)
    }
    if not leader.replicated or not against:
        return (
            Status.UNRESOLVED,
            f"{name} leads in the first look, and no fresh seeds were put to it",
        )
    if challengers:
        best = challengers[0]
        look = best.all_seeds.mean if best.all_seeds else None
        return Status.UNRESOLVED, (
            f"level {scalar_text(best.level)} looked better in the first look ({signed(look)}) than {name} on fresh "
            "seeds, and got no fresh seeds of its own"
        )
    return _leads(name, against)


def _leads(name: str, against: dict[Scalar, Shown]) -> tuple[Status, str]:
    """``against``: rival -> verdict as seen from the leader."""
    missing = [x for x, seen in against.items() if seen is Shown.NOT_REPLICATED]
    if missing:
        return Status.UNRESOLVED, f"{name} and {_levels(missing)} share fewer than two fresh seeds"
    open_ = [x for x, seen in against.items() if seen not in (Shown.HIGHER, Shown.EQUIVALENT)]
    if open_:
        return Status.NOT_CONFIRMED, f"{name} is not shown above {_levels(open_)}"
    tied = [x for x, seen in against.items() if seen is Shown.EQUIVALENT]
    if tied:
        return (
            Status.TIED,
            f"{name} leads, and {_levels(tied)} differs from it by less than what matters",
        )
    return Status.CONFIRMED, f"{name} is shown above {_levels(list(against))}"


def _seen_from(found: Contrast, level: Scalar) -> Shown:
    turned = {Shown.HIGHER: Shown.LOWER, Shown.LOWER: Shown.HIGHER}
    return found.verdict if found.level == level else turned.get(found.verdict, found.verdict)


def _comparison_status(
    baseline: Cell | None, contrasts: list[Contrast], question: Question
) -> tuple[Status, str]:
    name = f"the baseline {scalar_text(question.baseline)}"
    if baseline is None:
        return Status.UNRESOLVED, f"{name} has no result"
    tried = [c for c in contrasts if c.contest is not None]
    if not tried:
        return Status.UNRESOLVED, f"no level and {name} got fresh seeds"
    missing = [c.level for c in tried if c.verdict is Shown.NOT_REPLICATED]
    if missing:
        return Status.UNRESOLVED, f"{_levels(missing)} and {name} share fewer than two fresh seeds"
    open_ = [c.level for c in tried if c.verdict is Shown.NOT_SHOWN]
    if open_:
        return (
            Status.NOT_CONFIRMED,
            f"neither a difference nor equivalence of {_levels(open_)} and {name} is shown",
        )
    return Status.CONFIRMED, (
        f"{_levels([c.level for c in tried])}: each is shown to differ from {name} or to be equivalent to it"
    )


def _interaction_status(found: Sequence[Interaction], question: Question) -> tuple[Status, str]:
    across, tried = question.across, [f for f in found if f.contest is not None]
    done = [f for f in tried if f.verdict is not Shown.NOT_REPLICATED]
    if not done:
        return Status.UNRESOLVED, "no four cells share two fresh seeds"
    shown = next((f for f in done if f.verdict in (Shown.HIGHER, Shown.LOWER)), None)
    if shown is not None:
        return Status.CONFIRMED, (
            f"what level {scalar_text(shown.level)} changes against {scalar_text(shown.against)} is {shown.verdict} at "
            f"{across} {scalar_text(shown.condition)} than at {scalar_text(shown.other)}"
        )
    if len(done) < len(tried):
        return Status.UNRESOLVED, "some of the cells share fewer than two fresh seeds"
    if all(f.verdict is Shown.EQUIVALENT for f in done):
        return Status.TIED, f"{across} changes it by less than what matters"
    return (
        Status.NOT_CONFIRMED,
        f"no effect of {question.factor} is shown to differ between levels of {across}",
    )


def _levels(levels: Sequence[Scalar]) -> str:
    word = "level" if len(levels) == 1 else "levels"
    return f"{word} {listed([scalar_text(x) for x in levels])}"
