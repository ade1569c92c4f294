"""What a confirming stage compares, and whether it can: differences are taken seed by seed within one stage (``a3r.report.contrasts``).

So everything that a difference needs must be in the stage that confirms it, where code gives all of its cells the same seeds; and
what one stage compared on fresh seeds is not compared again, which would be asking until it fits. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from a3r.leader.factors import Scalar
from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.cells import cell_key
from a3r.leader.llm_planner.proposal import Cell
from a3r.leader.llm_planner.words import cell_text
from a3r.report.records import Records


def contest_faults(goal: GoalSpec, records: Records, cells: Sequence[Cell]) -> Iterator[str]:
    """Sentences for the model; none for a stage that can be compared as it stands. Not for a minimum: its cells are judged alone."""
    if goal.question.kind == "best":
        yield from _rival_faults(goal, records, cells)
    else:
        yield from _baseline_faults(goal, records, cells)


def _rival_faults(goal: GoalSpec, records: Records, cells: Sequence[Cell]) -> Iterator[str]:
    """Every level of a condition is a rival of every other there."""
    stages = _confirmed(records)
    for cell in cells:
        others = [o for o in cells if o is not cell and _at(goal, o) == _at(goal, cell)]
        pairs = [{cell_key(cell), cell_key(o)} for o in others]
        if not pairs:
            yield f"the cell {cell_text(cell)} has nothing to be compared with: confirm it together with another level of its condition"
        elif all(any(pair <= stage for stage in stages) for pair in pairs):
            yield f"the cell {cell_text(cell)} met every other cell of this stage on fresh seeds already; a second time would be asking until it fits"


def _baseline_faults(goal: GoalSpec, records: Records, cells: Sequence[Cell]) -> Iterator[str]:
    """Each level is held against the baseline in its own condition; an interaction also needs both in the first condition."""
    stages, here = _confirmed(records), {cell_key(c) for c in cells}
    used: set[str] = set()
    for cell in cells:
        needed = _needed(goal, cell)
        if not needed:
            continue
        keys = {cell_key(c) for c in (cell, *needed)}
        used |= keys
        missing = [c for c in needed if cell_key(c) not in here]
        for one in missing:
            yield f"the cell {cell_text(cell)} is compared with {cell_text(one)}: confirm both in the same stage, or leave both out"
        if not missing and any(keys <= stage for stage in stages):
            yield f"the cell {cell_text(cell)} met what it is compared with on fresh seeds already; a second time would be asking until it fits"
    for cell in cells:
        if cell_key(cell) not in used:
            yield f"the cell {cell_text(cell)} has nothing to be compared with in this stage: {_wanted(goal)}"


def _needed(goal: GoalSpec, cell: Cell) -> list[Cell]:
    """The other cells of the difference that this one is the subject of; empty for a cell that is only compared with."""
    question, baseline = goal.question, goal.baseline
    if cell[question.factor] == baseline:
        return []
    own = {**cell, question.factor: baseline}
    if question.kind != "interaction" or question.across is None:
        return [own]
    first = goal.conditions[0]
    if first is None or cell[question.across] == first:
        return []
    return [own, {**cell, question.across: first}, {**own, question.across: first}]


def _wanted(goal: GoalSpec) -> str:
    base = f"{goal.question.factor} {goal.baseline}"
    if goal.question.kind == "interaction":
        return (
            f"an interaction takes a level and {base}, each at {goal.question.across} {goal.conditions[0]} and at another "
            "condition, four cells in one stage"
        )
    return f"everything is compared with {base} in its own condition, in one stage"


def _confirmed(records: Records) -> list[set[str]]:
    """The cells that each confirming stage planned."""
    found: list[set[str]] = []
    for stage in records.stages:
        if stage.kind == "replicate":
            factors = [b.factors for b in records.blueprints if b.stage_id == stage.id]
            found.append({cell_key({k: v for k, v in f.items() if v is not None}) for f in factors})
    return found


def _at(goal: GoalSpec, cell: Cell) -> Scalar | None:
    across = goal.question.across
    return None if across is None else cell[across]
