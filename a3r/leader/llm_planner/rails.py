"""What a stage may be: a proposal becomes a plan only here.

Code checks the cells, chooses the seeds, counts the runs, writes every sentence and says what can be shown at best. Pure: the same
goal, records and proposal give the same plan, or the same faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.cells import CellState, cell_key, cell_states, level_in
from a3r.leader.llm_planner.contests import contest_faults
from a3r.leader.llm_planner.proposal import Cell, StageProposal
from a3r.leader.llm_planner.reach import budget_faults, reach
from a3r.leader.llm_planner.words import cell_text, outcome, prediction_text, question_text
from a3r.leader.plan import DesignRow, StagePlan
from a3r.leader.stage_words import stop_rule
from a3r.report.prose_guard import prose_faults, reserved_names
from a3r.report.records import Records

MAX_CELLS = 64
MAX_ROWS = 24
"""Predictions, or lines of the decision table."""
DONE = "the question is settled on fresh seeds, or the planner sees nothing more to learn"
OWN_WORDS = "The planner's own words"


@dataclass(frozen=True)
class Admission:
    """The plan, or why there is none."""

    plan: StagePlan | None
    faults: list[str] = field(default_factory=list[str])
    """Sentences for the model."""


def admit(goal: GoalSpec, records: Records, proposal: StageProposal) -> Admission:
    """The plan of this proposal, or every reason why it may not run."""
    states = {cell_key(s.factors): s for s in cell_states(records)}
    cells, faults = _cells(goal, proposal.cells)
    if not faults:
        faults += _evidence_faults(goal, records, proposal, cells)
    faults += [
        *_prediction_faults(goal, proposal, cells, states),
        *_table_faults(goal, proposal, cells),
    ]
    faults += _rationale_faults(goal, proposal.rationale)
    if faults:
        return Admission(None, faults)
    plan = _plan(goal, records, proposal, cells, list(states.values()))
    faults = list(budget_faults(goal, records, plan))
    return Admission(None if faults else plan, faults)


# --- cells -----------------------------------------------------------------------------------------------------


def _cells(goal: GoalSpec, proposed: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    faults: list[str] = []
    found: list[Cell] = []
    if len(proposed) > MAX_CELLS:
        return [], [f"{len(proposed)} cells are too many for one stage; at most {MAX_CELLS}"]
    for cell in proposed:
        read, wrong = read_cell(goal, cell)
        faults += wrong
        if read is not None:
            found.append(read)
    keys = [cell_key(c) for c in found]
    faults += [
        f"the cell {cell_text(c)} is there twice"
        for c, k in zip(found, keys, strict=True)
        if keys.count(k) > 1
    ]
    return found, list(dict.fromkeys(faults))


def read_cell(goal: GoalSpec, cell: Cell) -> tuple[Cell | None, list[str]]:
    """The cell in the goal's own levels and order, or what is wrong with it."""
    faults = [
        f"{name!r} is no factor of the goal ({', '.join(goal.factors)})"
        for name in cell
        if name not in goal.factors
    ]
    faults += [
        f"the cell {cell_text(cell) or '{}'} does not set {name!r}"
        for name in goal.factors
        if name not in cell
    ]
    read: Cell = {}
    for name in goal.factors:
        if name in cell:
            level = level_in(goal, name, cell[name])
            if level is None:
                levels = ", ".join(map(str, goal.factors[name].levels))
                faults.append(f"{cell[name]!r} is no level of {name!r} ({levels})")
            else:
                read[name] = level
    return (None if faults else read), faults


def _evidence_faults(
    goal: GoalSpec, records: Records, proposal: StageProposal, cells: Sequence[Cell]
) -> Iterator[str]:
    """Explored cells and confirmed ones never mix, and nothing is confirmed twice: that would be asking until it fits."""
    states = {cell_key(s.factors): s for s in cell_states(records)}
    if proposal.purpose == "explore":
        for cell in cells:
            state = states.get(cell_key(cell))
            if state is not None and not state.may_be_tried_again:
                yield f"the cell {cell_text(cell)} was planned before: confirm it on fresh seeds, or leave it out"
        return
    for cell in cells:
        state = states.get(cell_key(cell))
        if state is None or not (state.explored or state.fresh):
            yield f"the cell {cell_text(cell)} has no result yet: explore it before it is confirmed"
        elif goal.question.asks_minimum and state.fresh_planned:
            yield f"the cell {cell_text(cell)} got its fresh seeds already; a second time would be asking until it fits"
    if not goal.question.asks_minimum:
        yield from contest_faults(goal, records, cells)


# --- predictions, decision table, words ------------------------------------------------------------------------


def _prediction_faults(
    goal: GoalSpec, proposal: StageProposal, cells: Sequence[Cell], states: dict[str, CellState]
) -> Iterator[str]:
    if len(proposal.predictions) > MAX_ROWS:
        yield f"at most {MAX_ROWS} predictions"
        return
    here = {cell_key(c) for c in cells}
    for prediction in proposal.predictions:
        read, faults = read_cell(goal, prediction.cell)
        yield from faults
        if read is not None and cell_key(read) not in here:
            yield f"a prediction is about {cell_text(read)}, which is no cell of this stage"
        compares = prediction.expects.endswith("_other")
        if compares != (prediction.other is not None):
            yield f"`other` belongs to a prediction that compares, and only there ({prediction.expects})"
        if prediction.other is not None:
            other, wrong = read_cell(goal, prediction.other)
            yield from wrong
            if other is not None and cell_key(other) not in here | set(states):
                yield f"a prediction compares with {cell_text(other)}, which is neither in this stage nor in an earlier one"
            elif other == read:
                yield f"a prediction compares {cell_text(prediction.cell)} with itself"


def _table_faults(goal: GoalSpec, proposal: StageProposal, cells: Sequence[Cell]) -> Iterator[str]:
    table = proposal.decision_table
    if len(table) > MAX_ROWS:
        yield f"at most {MAX_ROWS} lines in the decision table"
        return
    here = {cell_key(c) for c in cells}
    for row in table:
        if row.when.startswith("cell_") != (row.cell is not None):
            yield f"`cell` belongs to a pattern about a cell, and only there ({row.when})"
        if row.cell is not None:
            read, faults = read_cell(goal, row.cell)
            yield from faults
            if read is not None and cell_key(read) not in here:
                yield f"the decision table speaks of {cell_text(read)}, which is no cell of this stage"
    patterns = {row.when for row in table}
    if "all_predictions_hold" not in patterns or not patterns & {
        "some_predictions_fail",
        "no_prediction_holds",
    }:
        yield "the decision table must say what follows when all predictions hold, and what follows when some or all fail"


def _rationale_faults(goal: GoalSpec, rationale: str) -> list[str]:
    if not rationale.strip():
        return []
    names = reserved_names(goal.model_dump(mode="json"))
    return [f"rationale: {fault}" for fault in prose_faults(rationale, names)]


# --- the plan --------------------------------------------------------------------------------------------------


def _plan(
    goal: GoalSpec,
    records: Records,
    proposal: StageProposal,
    cells: Sequence[Cell],
    states: list[CellState],
) -> StagePlan:
    confirms = proposal.purpose == "confirm"
    seeds, reason = _seeds(goal, records, cells, confirms=confirms), _reason(confirms=confirms)
    rows = tuple(DesignRow(factors=c, seeds=seeds, reason=reason) for c in cells)
    return StagePlan(
        kind="replicate" if confirms else "explore",
        question=question_text(proposal.model_copy(update={"cells": tuple(cells)})),
        design=rows,
        predictions=tuple(prediction_text(goal, p) for p in proposal.predictions),
        decision_table=tuple(outcome(goal, row) for row in proposal.decision_table),
        stop_rule=stop_rule(goal, DONE),
        min_effect=goal.criterion.min_gain,
        attainable=reach(goal, records, rows, confirms=confirms),
        why=_why(proposal, states),
        evidence={
            "cells": [s.view(goal.criterion.confidence) for s in states],
            "proposal": proposal.model_dump(mode="json"),
        },
    )


def _seeds(
    goal: GoalSpec, records: Records, cells: Sequence[Cell], *, confirms: bool
) -> tuple[int, ...]:
    """Code's choice, the same for all cells, so that they pair: the screening numbers, or the next ones that none of them had."""
    if not confirms:
        count = goal.seeds.refine if records.stages else goal.seeds.coarse
        return tuple(range(goal.seeds.first, goal.seeds.first + count))
    used = set[int]().union(*(records.planned_seeds(dict(cell)) for cell in cells))
    seeds: list[int] = []
    candidate = goal.seeds.first_fresh
    while len(seeds) < goal.seeds.replicate:
        if candidate not in used:
            seeds.append(candidate)
        candidate += 1
    return tuple(seeds)


def _reason(*, confirms: bool) -> str:
    if confirms:
        return "It has exploratory results; fresh seeds say whether they hold."
    return "It has no result yet."


def _why(proposal: StageProposal, states: list[CellState]) -> str:
    done = sum(len(s.explored) + len(s.fresh) for s in states)
    text = (
        f"{done} runs in {len(states)} cells have a result so far."
        if done
        else "Nothing is known yet."
    )
    own = " ".join(proposal.rationale.split())
    return f'{text} {OWN_WORDS}: "{own}"' if own else text
