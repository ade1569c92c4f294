"""What a stage can show at best, written into its plan before it is dispatched."""

from __future__ import annotations

import math
from collections.abc import Sequence

from a3r.leader.goal import GoalSpec
from a3r.leader.plan import Attainable
from a3r.report.analysis import Analysis
from a3r.report.family import share
from a3r.report.records import Records
from a3r.report.results import Cell
from a3r.stats.power import Design, DesignNote, design_note
from a3r.stats.tests import smallest_resolvable_gain


def alpha_of(goal: GoalSpec) -> float:
    """Family-wise level."""
    return round(1 - goal.criterion.confidence, 12)


def effect_of(goal: GoalSpec) -> float:
    """The smallest effect that matters: as the goal says, else the smallest gain that counts as training."""
    return goal.criterion.min_gain if goal.smallest_effect is None else goal.smallest_effect


def nothing_confirmed(goal: GoalSpec, seeds: int, sd: float | None) -> Attainable:
    """Of a stage that only looks where to look."""
    return Attainable(alpha=alpha_of(goal), family=0, n=seeds, sd=sd, smallest_gain=None)


def attainable(
    goal: GoalSpec, *, design: Design, family: int, sd: float | None, number: int
) -> Attainable:
    """Of a stage on fresh seeds.

    Args:
        goal: the goal; its number of fresh seeds and its smallest effect are used.
        design: ``threshold`` (a cell against a number) or ``paired`` (cells seed by seed).
        family: tests of the stage, which share its part of alpha.
        sd: between seeds; of the differences for ``paired``; None when nothing was measured.
        number: of this stage among those that confirm, from 1 (``confirming_number``).
    """
    n, alpha = goal.seeds.replicate, round(alpha_of(goal) * share(number), 12)
    note = design_note(
        design=design, n=n, family=family, alpha=alpha, sd=sd, effect=effect_of(goal)
    )
    smallest = None if sd is None else smallest_resolvable_gain(sd, n, alpha, family)
    return Attainable(
        alpha=alpha,
        family=family,
        n=n,
        sd=sd,
        smallest_gain=smallest,
        power=note.power,
        seeds_needed=note.seeds_needed,
        note=in_words(note),
    )


def confirming_number(records: Records) -> int:
    """Of the next stage among those that confirm, from 1."""
    return 1 + sum(stage.kind == "replicate" for stage in records.stages)


def in_words(note: DesignNote) -> str:
    """One or two sentences for people."""
    what = {
        "threshold": f"an excess of {note.effect:g} over the criterion",
        "paired": f"a difference of {note.effect:g}",
        "two-sample": f"a difference of {note.effect:g}",
    }[note.design]
    if note.power is None:
        return (
            f"How much seeds differ is not known yet, so the chance to show {what} with {note.n} seeds and "
            f"{note.family} tests is not known either."
        )
    text = f"{what[:1].upper()}{what[1:]} is shown with a chance of {_chance(note.power)}"
    if note.seeds_needed is None:
        text += "; not resolvable with any number of seeds that could be paid for"
    elif note.seeds_needed > note.n:
        text += f"; 80 % would take about {note.seeds_needed} seeds a cell"
    text += "."
    if not note.resolvable:
        text += " Smaller effects will most likely stay open: not resolvable with these seeds."
    return text


def _chance(power: float) -> str:
    if power > 0.99:
        return "over 99 %"
    return "under 1 %" if power < 0.01 else f"about {100 * power:.0f} %"


def pooled_sd(analysis: Analysis) -> float | None:
    """Standard deviation between seeds, pooled over cells by degrees of freedom; None when no cell has two results."""
    cells = [c for found in analysis.conditions for c in found.cells]
    return pooled(
        [(b.n - 1, b.sd) for c in cells if (b := c.all_seeds) is not None and b.sd is not None]
    )


def paired_sd(pairs: Sequence[tuple[Cell, Cell]]) -> float | None:
    """Standard deviation of the differences by seed, pooled over pairs of cells; None when no pair shares two seeds."""
    spread: list[tuple[int, float]] = []
    for first, second in pairs:
        below = {g.seed: g.gain for g in second.gains}
        values = [g.gain - below[g.seed] for g in first.gains if g.seed in below]
        if len(values) > 1:
            centre = math.fsum(values) / len(values)
            squares = math.fsum((x - centre) ** 2 for x in values)
            spread.append((len(values) - 1, math.sqrt(squares / (len(values) - 1))))
    return pooled(spread)


def pooled(spread: Sequence[tuple[int, float]]) -> float | None:
    """From (degrees of freedom, standard deviation) pairs; None when there are no degrees of freedom."""
    freedom = sum(n for n, _ in spread)
    if not freedom:
        return None
    return math.sqrt(math.fsum(n * sd * sd for n, sd in spread) / freedom)
