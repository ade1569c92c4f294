"""The conversation that plans one stage: tools, an answer, the rails; what is refused is said and asked again, three times at most."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

from a3r.core.errors import A3RError, NotFound, ReplyInvalid
from a3r.core.llm import ModelMessage
from a3r.core.types import JobState
from a3r.leader.clients.remedy import MAX_REPAIRS, is_code_fault, repairs
from a3r.leader.findings import LOOK_UP
from a3r.leader.goal import GoalSpec
from a3r.leader.job_words import why
from a3r.leader.jobs import JobContext
from a3r.leader.llm.tools import quoted
from a3r.leader.llm_planner.cells import cell_states
from a3r.leader.llm_planner.looking import WINDOW, Looking
from a3r.leader.llm_planner.proposal import PlanAnswer, StageProposal
from a3r.leader.llm_planner.proposing import AskClient, Proposing, still_open
from a3r.leader.llm_planner.rails import admit
from a3r.leader.llm_planner.reach import rooms
from a3r.leader.llm_planner.toolbox import Tools
from a3r.report.export import records_from_store
from a3r.report.records import Records, RunRecord

PURPOSE = "plan"
TRIES = 3


def plan_stage(context: JobContext) -> dict[str, Any]:
    """The handler of ``plan`` jobs: ``{"action": "stage", "proposal", "notes"}`` or ``{"action": "finish", "insisted", "notes"}``.

    Raises:
        ReplyInvalid: no answer passed the rails.
        ModelError: see ``Desk.ask``.
    """
    goal = GoalSpec.model_validate(context.campaign.goal_spec)
    records = records_from_store(context.store, context.campaign.id)
    proposing = Proposing(goal, records, _clients(context, records))
    tools = Tools([*_looking(context, goal, records).tools(), *proposing.tools()])
    messages = [
        ModelMessage(role="system", content=prompt()),
        ModelMessage(role="user", content=situation(goal, records, context.campaign.goal_text)),
    ]
    faults: list[str] = []
    for number in range(1, TRIES + 1):
        answer = context.desk.ask(f"answer-{number}", PURPOSE, messages, PlanAnswer, tools=tools)
        result, faults = _settled(answer, proposing)
        if result is not None:
            return {**result, "notes": proposing.notes}
        listed = "\n".join(f"- {fault}" for fault in faults)
        messages += [
            ModelMessage(role="assistant", content=answer.model_dump_json()),
            ModelMessage(role="user", content=f"That can not be done:\n{listed}\nPlan again."),
        ]
    raise ReplyInvalid(
        f"the language model proposed no stage that may run, in {TRIES} tries: {'; '.join(faults)}",
        hint="'a3r campaign resume' asks again; 'a3r campaign stop' ends with a report of what is there.",
        faults=faults,
    )


def prompt() -> str:
    """What a planner is told."""
    return (files("a3r.leader.llm_planner") / "plan.md").read_text(encoding="utf-8")


def situation(goal: GoalSpec, records: Records, goal_text: str) -> str:
    """Goal, factors, what is known of each cell, what the budget leaves, what code sees as open. A pure function of its arguments."""
    known = {
        "question": goal.question.model_dump(mode="json"),
        "factors": {name: list(f.levels) for name, f in goal.factors.items()},
        "criterion": goal.criterion.model_dump(mode="json"),
        "cells": [s.view(goal.criterion.confidence) for s in cell_states(records)],
        "stages": [{"number": s.ordinal, "kind": s.kind, "state": s.state} for s in records.stages],
        "left": rooms(goal, records),
        "open": still_open(goal, records),
        "earlier_findings": [
            d.evidence.get("findings") for d in records.decisions if d.what == LOOK_UP
        ],
    }
    data = json.dumps(known, ensure_ascii=False, sort_keys=True, default=str)
    return "\n\n".join(
        [
            quoted("the goal", goal_text),
            quoted("what is known", data),
            f"Plan stage {len(records.stages) + 1}.",
        ]
    )


def _settled(answer: PlanAnswer, proposing: Proposing) -> tuple[dict[str, Any] | None, list[str]]:
    """The job's result, or why the answer can not stand."""
    if answer.action == "finish":
        still = still_open(proposing.goal, proposing.records)
        if not still or proposing.finished:
            return {"action": "finish", "insisted": bool(still)}, []
        return None, [f"still open: {still}. Propose a stage, or use `finish` with insist=true"]
    proposal: StageProposal | None = answer.stage or proposing.accepted
    if proposal is None:
        return None, ["there is no stage: use `propose_stage`, or put it into `stage`"]
    found = admit(proposing.goal, proposing.records, proposal)
    if found.plan is None:
        return None, found.faults
    return {"action": "stage", "proposal": proposal.model_dump(mode="json")}, []


# --- what the tools reach --------------------------------------------------------------------------------------


def _looking(context: JobContext, goal: GoalSpec, records: Records) -> Looking:
    def read_log(attempt_id: str, name: str) -> bytes:
        return context.store.read_log(attempt_id, name, -WINDOW, WINDOW)

    def related(words: str) -> Sequence[dict[str, Any]]:
        return earlier_findings(context, words)

    return Looking(goal, records, read_log, related)


def earlier_findings(context: JobContext, words: str) -> list[dict[str, Any]]:
    """What other campaigns of the workspace found, best match first."""
    found = context.store.search_findings(words, 10, without=context.campaign.id)
    return [{"text": f.text, "question": f.question, "campaign": f.campaign_id} for f in found]


def _clients(context: JobContext, records: Records) -> AskClient:
    def ask(kind: Literal["write_client", "repair"], subject: str) -> str:
        if kind == "repair":
            return _asked_repair(context, _run_named(records, subject))
        return _filed(context, kind, subject, {"task": subject})

    return ask


def _asked_repair(context: JobContext, run: RunRecord) -> str:
    """File the repair of the client that ended the run's last attempt, or say what became of it.

    Raises:
        A3RError: no repair would help, or none is to be had.
    """
    store = context.store
    attempts = store.attempts_of_run(run.id)
    if not attempts or not is_code_fault(attempts[-1]):
        raise A3RError(
            "the client's code did not end that run's last attempt: no repair would help"
        )
    last, revision = attempts[-1], store.revision_in_force(run.blueprint_id)
    if revision is not None and revision.ordinal > last.revision:
        return "it was repaired since: the next stage begins with the repaired client"
    sha = store.blueprint(run.blueprint_id).artifact_sha
    sha = sha if revision is None else revision.artifact_sha
    known = next((j for j in store.jobs(context.campaign.id) if repairs(j, sha)), None)
    if known is not None and known.state is JobState.FAILED:
        raise A3RError(f"a repair was tried and given up: {why(known)}")
    if known is not None:
        return "it is being repaired, or waits for a person: the next stage waits for it"
    if len(store.revisions(context.campaign.id, run.blueprint_id)) >= MAX_REPAIRS:
        raise A3RError(f"it was repaired {MAX_REPAIRS} times: a person should look")
    payload = {"attempt": last.id, "blueprint": run.blueprint_id, "base_sha": sha}
    return _filed(context, "repair", last.id, payload)


def _filed(context: JobContext, kind: str, name: str, payload: dict[str, str]) -> str:
    job_id = f"{context.campaign.id}/{kind}/{name}"
    context.store.ensure_job(job_id, context.campaign.id, kind, payload, context.clock.time())
    return (
        f"filed as {job_id}: it is checked, tried and reviewed before the next stage begins with it"
    )


def _run_named(records: Records, name: str) -> RunRecord:
    for run in records.runs:
        if name in (run.id, f"{records.blueprint(run.blueprint_id).name} seed {run.seed}"):
            return run
    raise NotFound(f"there is no run {name!r}; `list_runs` names them")
