"""What follows when an attempt ended because of its client's code: a repair by the language model, an approval, a new attempt.

Level-triggered like the rest of the tick: everything is read from the store. One repair serves every blueprint that runs the same
client, so that cells keep comparable and nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from a3r.core.errors import BlueprintError
from a3r.core.types import (
    TERMINAL_RUNS,
    AttemptState,
    FailureClass,
    JobState,
    ReviewMode,
    RevisionState,
)
from a3r.leader.goal import GoalSpec
from a3r.leader.job_words import why
from a3r.leader.static_check import REQUIRED_FUNCTIONS
from a3r.leader.tick import Tick
from a3r.report.no_result import NO_REPAIR
from a3r.report.prose_guard import prose_faults, reserved_names
from a3r.store.revisions import Revised
from a3r.store.rows import AttemptRow, BlueprintRow, JobRow, RunRow

KIND = "repair"
MAX_REPAIRS = 3
"""Of one blueprint's client. More are no slip: a person should look."""
UNMENDED = BlueprintError.code
"""Of a repair job whose last draft passed no check."""
BY = "the leader"
CODE_FAULTS = frozenset(
    {
        FailureClass.IMPORT,
        FailureClass.SYNTAX,
        FailureClass.CLIENT_CRASH,
        FailureClass.DATA_MISSING,
    }
)
OF_CLIENT = "client"
"""Beginning of an attempt's reason when the client was the process that ended (``a3r.worker.repair``)."""


class Next(StrEnum):
    """What the run does now."""

    AS_BEFORE = "as_before"  # no repair is wanted or possible: retry or end as without one
    WAIT = "wait"  # a repair is being made, or waits for a person
    RETRY = "retry"  # a repaired client is there


def uses_model(goal: GoalSpec) -> bool:
    """Whether the goal lets a language model be paid for: its planner is one, or its budget names what it may spend."""
    budget = goal.budget
    named = (budget.llm_usd, budget.llm_tokens, budget.llm_calls)
    return goal.planner == "llm" or any(value is not None for value in named)


def after_failure(tick: Tick, blueprint: BlueprintRow, attempts: list[AttemptRow]) -> Next:
    """What a run does whose ``attempts`` are all over; files the repair job where one is due. Safe to repeat."""
    if not uses_model(tick.goal):
        return Next.AS_BEFORE
    sha, number = client_in_force(tick, blueprint)
    under_way = _job_for(tick, sha)
    if not attempts:
        # A first attempt with a client that is being mended would only fail in the same way.
        return Next.WAIT if _in_work(tick, blueprint, under_way) else Next.AS_BEFORE
    last = attempts[-1]
    if not is_code_fault(last):
        return Next.AS_BEFORE
    if number > last.revision:
        return Next.RETRY
    revisions = tick.store.revisions(tick.id, blueprint.id)
    if any(r.state is RevisionState.PENDING for r in revisions):
        return Next.WAIT
    refused = any(r.base_sha == sha and r.state is RevisionState.REJECTED for r in revisions)
    if refused or (under_way is None and len(revisions) >= MAX_REPAIRS):
        return Next.AS_BEFORE
    payload = {"attempt": last.id, "blueprint": blueprint.id, "base_sha": sha}
    job = under_way or tick.job(KIND, last.id, payload)
    if job.state is JobState.FAILED:
        return _given_up(tick, job)
    if job.state is not JobState.DONE or job.result is None:
        return Next.WAIT
    return _apply(tick, job, sha, job.result, blueprint)


def before_a_stage(tick: Tick, sha: str) -> Next:
    """What a stage does that would begin with the client ``sha``; takes over a repair that came when its runs had ended already."""
    job = _job_for(tick, sha)
    if job is None or job.state is JobState.FAILED:
        return Next.AS_BEFORE
    decided = [r for r in tick.store.revisions(tick.id) if r.base_sha == sha]
    if any(r.state is RevisionState.APPROVED for r in decided):
        return Next.RETRY
    if any(r.state is RevisionState.PENDING for r in decided):
        return Next.WAIT
    if decided:
        return Next.AS_BEFORE
    if job.state is not JobState.DONE or job.result is None:
        return Next.WAIT
    blueprint = tick.store.blueprint(str(job.payload["blueprint"]))
    return _apply(tick, job, sha, job.result, blueprint)


def is_code_fault(attempt: AttemptRow) -> bool:
    """Whether the client's own code ended the attempt. What the evaluator did is never a reason to change a client."""
    failed = attempt.state is AttemptState.FAILED and attempt.failure in CODE_FAULTS
    return failed and attempt.reason.startswith(OF_CLIENT)


def repairs(job: JobRow, sha: str) -> bool:
    """Whether the job mends the client with this artifact."""
    return job.kind == KIND and job.payload.get("base_sha") == sha


def client_in_force(tick: Tick, blueprint: BlueprintRow) -> tuple[str, int]:
    """Artifact and revision number of the client that the blueprint's next attempt runs."""
    revision = tick.store.revision_in_force(blueprint.id)
    return (
        (blueprint.artifact_sha, 0)
        if revision is None
        else (revision.artifact_sha, revision.ordinal)
    )


def past_mending(tick: Tick, runs: Sequence[RunRow]) -> bool:
    """Whether each of these failed runs ended by its client's code, and its client can not be mended; False for none.

    Given up are drafts that no check passes, and more repairs than a client gets. What a person can put right (a key, a price, a
    budget) is not: then a resume has it tried again.
    """
    return bool(runs) and all(_unmendable(tick, run) for run in runs)


def _unmendable(tick: Tick, run: RunRow) -> bool:
    attempts = tick.store.attempts_of_run(run.id)
    if not uses_model(tick.goal) or not attempts or not is_code_fault(attempts[-1]):
        return False
    blueprint = tick.store.blueprint(run.blueprint_id)
    job = _job_for(tick, client_in_force(tick, blueprint)[0])
    if job is None:
        return len(tick.store.revisions(tick.id, blueprint.id)) >= MAX_REPAIRS
    return job.state is JobState.FAILED and (job.result or {}).get("code") == UNMENDED


def awaits_person(tick: Tick) -> bool:
    """Whether a revision waits for a verdict."""
    return any(r.state is RevisionState.PENDING for r in tick.store.revisions(tick.id))


def _job_for(tick: Tick, sha: str) -> JobRow | None:
    """The repair of this very client, whichever attempt it was filed for."""
    return next((j for j in tick.store.jobs(tick.id) if repairs(j, sha)), None)


def _in_work(tick: Tick, blueprint: BlueprintRow, job: JobRow | None) -> bool:
    if job is None or job.state is JobState.FAILED:
        return False
    revisions = tick.store.revisions(tick.id, blueprint.id)
    decided = [r for r in revisions if r.base_sha == job.payload.get("base_sha")]
    return not decided or any(r.state is RevisionState.PENDING for r in decided)


def _given_up(tick: Tick, job: JobRow) -> Next:
    told: dict[str, Any] = job.result or {}
    tick.decide_once(
        None,
        f"{NO_REPAIR}: {job.id.rpartition('/')[2]}",
        f"{why(job)}; the run goes on as without a repair",
        {"job": job.id, "code": told.get("code")},
    )
    return Next.AS_BEFORE


def _apply(
    tick: Tick, job: JobRow, sha: str, result: dict[str, Any], blueprint: BlueprintRow
) -> Next:
    asks = tick.campaign.review_mode is ReviewMode.ALL
    evidence = {
        "attempt": str(job.payload["attempt"]),
        "failure": result["failure"],
        "functions": result["functions"],
        "trial": result["trial"],
        "job": job.id,
    }
    revised = Revised(
        base_sha=sha,
        artifact_sha=str(result["artifact_sha"]),
        tree_hash=str(result["tree_hash"]),
        diff=str(result["diff"]),
        reason=_in_words(tick.goal, result),
        evidence={**evidence, "explanation": str(result["explanation"])},
    )
    # The one that failed, and every blueprint that runs the same client and is not done.
    open_ones = {r.blueprint_id for r in tick.store.runs(tick.id) if r.state not in TERMINAL_RUNS}
    peers = {
        b.id
        for b in tick.store.blueprints(tick.id)
        if b.id in open_ones and client_in_force(tick, b)[0] == sha
    }
    state = RevisionState.PENDING if asks else RevisionState.APPROVED
    tick.store.add_revision(sorted(peers | {blueprint.id}), revised, state, BY, tick.now)
    return Next.WAIT if asks else Next.RETRY


def _in_words(goal: GoalSpec, result: dict[str, Any]) -> str:
    """Why the client was changed, for the report: code's words, and the model's own only as far as they can state no result."""
    changed = [str(name) for name in result["functions"]]
    known = [name for name in changed if name in REQUIRED_FUNCTIONS]
    others = len(changed) - len(known)
    parts = [*known, *([f"{others} other function(s)"] if others else [])]
    text = f"{result['failure']}: changed {', '.join(parts) or 'no function, but other lines or files'}"
    told = " ".join(str(result["explanation"]).split())
    return (
        text
        if prose_faults(told, reserved_names(goal.model_dump(mode="json")))
        else f'{text}. In the model\'s words: "{told}"'
    )
