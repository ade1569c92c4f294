"""Tools that propose: a cell, a stage, a client's repair, a note for the record, the end. Code says yes or no at once, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from a3r.core.errors import A3RError
from a3r.leader.goal import GoalSpec
from a3r.leader.llm_planner.proposal import (
    Cell,
    DecisionRow,
    Prediction,
    Purpose,
    StageProposal,
)
from a3r.leader.llm_planner.rails import admit, read_cell
from a3r.leader.llm_planner.toolbox import Args, Nothing, Tool
from a3r.leader.llm_planner.words import cell_text
from a3r.leader.plan import Conclusion, StagePlan
from a3r.leader.sweep import SweepPlanner
from a3r.leader.tasks import TASKS
from a3r.report.prose_guard import prose_faults, reserved_names
from a3r.report.records import Records

MAX_NOTES = 5
"""A session."""

AskClient = Callable[[Literal["write_client", "repair"], str], str]
"""(kind of job, task or run) -> what was filed, in words; raises A3RError when that makes no sense."""


class CellArgs(Args):
    """One cell."""

    cell: Cell


class StageArgs(Args):
    """A stage; without ``cells`` those that ``propose_blueprint`` collected."""

    purpose: Purpose
    cells: tuple[Cell, ...] = ()
    predictions: tuple[Prediction, ...]
    decision_table: tuple[DecisionRow, ...]
    rationale: str = ""


class NoteArgs(Args):
    """A note for the record."""

    about: Literal["runs_failed", "results_vary", "design", "cost", "method"]
    text: str
    """At most 400 characters, without digits, number words, names of factors or conditions, or verdicts."""


class RepairArgs(Args):
    """A run whose client fails."""

    run: str


class FinishArgs(Args):
    """The end of the study."""

    insist: bool = False
    """Finish though code sees something that could still be settled."""
    rationale: str = Field(default="", max_length=400)


@dataclass
class Proposing:
    """What was proposed and accepted in one session. Replayed calls bring it back."""

    goal: GoalSpec
    records: Records
    ask_client: AskClient
    draft: list[Cell] = field(default_factory=list[Cell])
    accepted: StageProposal | None = None
    finished: bool = False
    notes: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def tools(self) -> list[Tool[Any]]:
        """All of them."""
        return [
            Tool(
                "propose_blueprint",
                "Collect one cell for the next stage; says what its blueprint would be.",
                CellArgs,
                self.propose_blueprint,
            ),
            Tool(
                "propose_stage",
                "Propose the next stage; says whether it is accepted, and why not.",
                StageArgs,
                self.propose_stage,
            ),
            Tool(
                "write_client",
                "Have the client of the goal's own task written, or say that it is there.",
                Nothing,
                self.write_client,
            ),
            Tool(
                "repair_client",
                "Have the client of a run that failed in its code repaired.",
                RepairArgs,
                self.repair_client,
            ),
            Tool(
                "record_decision",
                "Keep a note in the report, under the rules for prose.",
                NoteArgs,
                self.record_decision,
            ),
            Tool(
                "finish",
                "Say that nothing more is worth running; code says what is still open.",
                FinishArgs,
                self.finish,
            ),
        ]

    def propose_blueprint(self, args: CellArgs) -> dict[str, Any]:
        """Collect one cell."""
        read, faults = read_cell(self.goal, args.cell)
        if read is None:
            raise A3RError("; ".join(faults))
        if read not in self.draft:
            self.draft.append(read)
        return {
            "collected": [cell_text(cell) for cell in self.draft],
            "fixed_settings": self.goal.settings,
            "seeds": "chosen by code when the stage is proposed",
        }

    def propose_stage(self, args: StageArgs) -> dict[str, Any]:
        """Check a stage; the last accepted one stands."""
        cells = args.cells or tuple(self.draft)
        if not cells:
            raise A3RError(
                "the stage has no cells: give `cells`, or collect them with propose_blueprint"
            )
        proposal = StageProposal.model_validate({**args.model_dump(), "cells": cells})
        found = admit(self.goal, self.records, proposal)
        if found.plan is None:
            return {"accepted": False, "because": found.faults}
        self.accepted, self.finished, self.draft = proposal, False, []
        return {"accepted": True, **_told(found.plan)}

    def write_client(self, _: Nothing) -> dict[str, Any]:
        """File the job that writes it."""
        if self.goal.task in TASKS:
            return {"client": f"the client of {self.goal.task!r} ships with a3r"}
        return {"client": self.ask_client("write_client", self.goal.task)}

    def repair_client(self, args: RepairArgs) -> dict[str, Any]:
        """File the job that repairs it."""
        return {"repair": self.ask_client("repair", args.run)}

    def record_decision(self, args: NoteArgs) -> dict[str, Any]:
        """Keep a note that breaks no rule of prose."""
        if len(self.notes) >= MAX_NOTES:
            raise A3RError(f"at most {MAX_NOTES} notes a session")
        faults = prose_faults(args.text, reserved_names(self.goal.model_dump(mode="json")))
        if faults:
            return {"kept": False, "because": faults}
        note = {"about": args.about, "text": " ".join(args.text.split())}
        if note not in self.notes:
            self.notes.append(note)
        return {"kept": True}

    def finish(self, args: FinishArgs) -> dict[str, Any]:
        """Agree when nothing is open, or when the model insists."""
        still = still_open(self.goal, self.records)
        if still and not args.insist:
            return {
                "accepted": False,
                "because": f"still open: {still}. Propose a stage for it, or finish with insist=true: the report will say so.",
            }
        self.finished, self.accepted = True, None
        return {"accepted": True}


def still_open(goal: GoalSpec, records: Records) -> str:
    """What the built-in planner would still run, in words; empty when it would conclude."""
    if not records.stages:
        return "nothing was run yet"
    found = SweepPlanner().next(goal, records)
    if isinstance(found, Conclusion):
        return ""
    cells = "; ".join(cell_text(row.factors) for row in found.design)
    return f"{cells} ({'fresh seeds' if found.kind == 'replicate' else 'no result yet'})"


def _told(plan: StagePlan) -> dict[str, Any]:
    best = plan.attainable
    return {
        "runs": plan.runs,
        "seeds_a_cell": best.n,
        "confirmatory_tests": best.family,
        "smallest_gain_that_can_be_confirmed": best.smallest_gain,
    }
