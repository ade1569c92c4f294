"""Designs for a best level, a comparison or an interaction: which levels to look at, which cells to repeat. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.leader.plan import DesignRow
from a3r.leader.resolution import pooled
from a3r.leader.sweep_steps import coarse_levels, refine_levels
from a3r.report.contrast_results import ConditionContrasts, ContrastAnalysis
from a3r.report.records import Records
from a3r.report.results import Cell
from a3r.stats.distributions import t_quantile

FULL_LOOK = 5
"""Numeric levels up to which a best level's first look takes the whole grid."""
BEHIND = 0.995
"""Quantile of t: a level whose first look lies farther behind than this explains is put aside. Never the runner-up."""


def first_levels(goal: GoalSpec) -> tuple[Scalar, ...]:
    """Levels of the first look: all words, all that a comparison asks for, and a coarse net over a long scale of numbers."""
    levels, question = goal.levels, goal.question
    long = goal.factors[question.factor].numeric and len(levels) > FULL_LOOK
    if question.kind == "comparison" or not long:
        return levels
    chosen = set(coarse_levels(levels))
    if question.kind == "interaction":
        chosen.add(goal.baseline)
    return tuple(x for x in levels if x in chosen)


def first_design(goal: GoalSpec) -> tuple[DesignRow, ...]:
    """Every condition at the levels of the first look, all with the same seeds."""
    seeds = tuple(range(goal.seeds.first, goal.seeds.first + goal.seeds.coarse))
    return tuple(
        DesignRow(
            factors=goal.cell(level, condition),
            seeds=seeds,
            reason=f"{level} is one of the levels of the first look.",
        )
        for condition in goal.conditions
        for level in first_levels(goal)
    )


def closer_design(goal: GoalSpec, analysis: ContrastAnalysis) -> tuple[DesignRow, ...]:
    """A best number: untested levels on both sides of each condition's leader; empty when its neighbours are tested."""
    if goal.question.kind != "best" or not goal.factors[goal.question.factor].numeric:
        return ()
    seeds = tuple(range(goal.seeds.first, goal.seeds.first + goal.seeds.refine))
    rows: list[DesignRow] = []
    for found in analysis.conditions:
        for level in _beside(goal.levels, found):
            reason = f"{found.leader} leads so far, and {level} beside it was not tested."
            factors = goal.cell(level, found.condition)
            rows.append(DesignRow(factors=factors, seeds=seeds, reason=reason))
    return tuple(rows)


def _beside(levels: Sequence[Scalar], found: ConditionContrasts) -> list[Scalar]:
    if found.leader not in levels:
        return []
    planned = {c.level for c in found.cells}
    at = levels.index(found.leader)
    gaps: list[list[Scalar]] = [[], []]
    for gap, side in zip(gaps, (reversed(levels[:at]), levels[at + 1 :]), strict=True):
        for level in side:
            if level in planned:
                break
            gap.append(level)
    below, above = gaps
    return [*refine_levels(below[::-1]), *refine_levels(above)]


# --- fresh seeds -----------------------------------------------------------------------------------------------


def confirm_design(
    goal: GoalSpec, analysis: ContrastAnalysis, records: Records
) -> tuple[DesignRow, ...]:
    """Cells whose comparison on fresh seeds would settle what is open; empty when nothing more can be asked.

    Cells that are compared get the same seeds, so that they can be taken in pairs.
    """
    if goal.question.kind == "interaction":
        return _crossed(goal, analysis, records)
    rows: list[DesignRow] = []
    for found in analysis.conditions:
        if goal.question.kind == "best":
            rows += _contest(goal, found, records)
        else:
            rows += _against_baseline(goal, found, records)
    return tuple(rows)


def _contest(goal: GoalSpec, found: ConditionContrasts, records: Records) -> list[DesignRow]:
    if found.leader is None:
        return []
    if not any(c.fresh_planned for c in found.cells):
        levels = contenders(goal, found)
        return _paired(
            goal, found.condition, levels, records, "leads or is close behind in the first look"
        )
    if found.challengers:
        # The leader runs again beside them: its old fresh seeds made it look weak, so they are no fair rival.
        levels = [_level(x) for x in (found.leader, *found.challengers[: goal.criterion.rivals])]
        return _paired(
            goal, found.condition, levels, records, "may be better than what leads on fresh seeds"
        )
    return _missing_pairs(goal, found, records)


def contenders(goal: GoalSpec, found: ConditionContrasts) -> list[Scalar]:
    """The leader and its nearest rivals by the first look, best first: at most ``rivals`` and none that is clearly behind."""
    looked = [(c, c.all_seeds) for c in found.cells if c.all_seeds is not None]
    ranked = sorted(looked, key=lambda pair: -pair[1].mean)
    freedom = sum(b.n - 1 for _, b in ranked if b.sd is not None)
    sd = pooled([(b.n - 1, b.sd) for _, b in ranked if b.sd is not None])
    (leader, best), *others = ranked
    out: list[Scalar] = [_level(leader.level)]
    for rival, look in others[: goal.criterion.rivals]:
        if sd is not None and len(out) > 1:
            reach = t_quantile(BEHIND, freedom) * sd * math.sqrt(1 / best.n + 1 / look.n)
            if best.mean - look.mean > reach:
                break
        out.append(_level(rival.level))
    return out if len(out) > 1 else []


def _missing_pairs(goal: GoalSpec, found: ConditionContrasts, records: Records) -> list[DesignRow]:
    """A leader that came late was never put to older rivals: they meet on new seeds. What failed is not asked for again."""
    levels = [
        _level(pair.against if pair.level == found.leader else pair.level)
        for pair in found.contrasts
        if found.leader in (pair.level, pair.against) and pair.contest is None
    ]
    if not levels:
        return []
    why = "leads on fresh seeds, or was not yet put to the level that does"
    return _paired(goal, found.condition, [_level(found.leader), *levels], records, why)


def _against_baseline(
    goal: GoalSpec, found: ConditionContrasts, records: Records
) -> list[DesignRow]:
    """The baseline and what is compared with it: all of it, or the levels whose first look differs most."""
    baseline = found.cell(goal.baseline)
    if baseline is None or not baseline.gains or any(c.fresh_planned for c in found.cells):
        return []
    looked = [(c, abs(c.first_look)) for c in found.contrasts if c.first_look is not None]
    ranked = sorted(looked, key=lambda pair: -pair[1])[: goal.criterion.rivals]
    chosen = {c.level for c, _ in ranked}
    if not chosen:
        return []
    levels = [x for x in goal.levels if x in chosen or x == goal.baseline]
    return _paired(
        goal, found.condition, levels, records, "is compared with the baseline on fresh seeds"
    )


def _crossed(goal: GoalSpec, analysis: ContrastAnalysis, records: Records) -> tuple[DesignRow, ...]:
    """For each further condition the level whose effect differs most from the first condition's, with the baseline: four cells."""
    if any(f.contest is not None for f in analysis.interactions):
        return ()
    cells: list[dict[str, Scalar]] = []
    for condition in goal.conditions[1:]:
        looked = [
            (f, abs(f.first_look))
            for f in analysis.interactions
            if f.condition == condition and f.first_look is not None
        ]
        if not looked:
            continue
        level = _level(max(looked, key=lambda pair: pair[1])[0].level)
        for at in (goal.conditions[0], condition):
            cells += [goal.cell(goal.baseline, at), goal.cell(level, at)]
    unique = [c for i, c in enumerate(cells) if c not in cells[:i]]
    seeds = common_seeds(goal, records, unique)
    return tuple(
        DesignRow(
            factors=factors,
            seeds=seeds,
            reason="One of the four cells between which the first look saw the effect differ most.",
        )
        for factors in unique
    )


def _paired(
    goal: GoalSpec,
    condition: Scalar | None,
    levels: Iterable[Scalar],
    records: Records,
    why: str,
) -> list[DesignRow]:
    cells = [(level, goal.cell(level, condition)) for level in levels]
    seeds = common_seeds(goal, records, [factors for _, factors in cells])
    return [
        DesignRow(factors=factors, seeds=seeds, reason=f"{level} {why}.")
        for level, factors in cells
    ]


def common_seeds(
    goal: GoalSpec, records: Records, cells: Sequence[dict[str, Scalar]]
) -> tuple[int, ...]:
    """The next seeds that no stage has planned in any of the cells, from the first number that screening never uses."""
    used: set[int] = set()
    for factors in cells:
        used |= records.planned_seeds(dict(factors))
    out: list[int] = []
    candidate = goal.seeds.first_fresh
    while len(out) < goal.seeds.replicate:
        if candidate not in used:
            out.append(candidate)
        candidate += 1
    return tuple(out)


def _level(level: Scalar | None) -> Scalar:
    assert level is not None
    return level


def pairs_of(found: ConditionContrasts, levels: Sequence[Scalar]) -> list[tuple[Cell, Cell]]:
    """The leader with each of the levels, where both have cells."""
    leader = found.cell(found.leader)
    others = [found.cell(x) for x in levels if x != found.leader]
    return [(c, leader) for c in others if c is not None and leader is not None]
