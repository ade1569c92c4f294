"""A running stage: queue attempts within the budgets, settle runs whose attempts are over, and see when all of it is done."""

from __future__ import annotations

from collections import Counter

from a3r.core.types import (
    TERMINAL_ATTEMPTS,
    TERMINAL_RUNS,
    AttemptState,
    CampaignState,
    ReviewStatus,
    RunState,
    StageState,
)
from a3r.leader.clients.remedy import Next, after_failure, awaits_person, past_mending
from a3r.leader.renewal import renew
from a3r.leader.retry import may_retry, of_last_client, reason_of
from a3r.leader.reuse import take_over
from a3r.leader.review_gate import DECIDED
from a3r.leader.sweep_steps import evidence_of
from a3r.leader.tick import Tick
from a3r.report.analysis import analyse
from a3r.store.rows import AttemptRow, BlueprintRow, PendingWork, RunRow, StageRow

AHEAD = 2
"""Attempts queued or under way at once, as a multiple of the capacity: a worker that gets free never waits for a tick."""
WALL_CLOCK = "the wall clock budget was used up"
GPU_HOURS = "the budget of GPU hours was used up"


def run_stage(tick: Tick, stage: StageRow) -> bool:
    """One look at a running stage; True when something was written."""
    blueprints = tick.store.blueprints(tick.id, stage.id)
    runs = _runs_of(tick, blueprints)
    changed = _make_runs(tick, blueprints, runs)
    if changed:
        runs = _runs_of(tick, blueprints)
    changed |= take_over(tick, stage, runs)
    used_up = _used_up(tick)
    if used_up:
        changed |= _cancel_waiting(tick, runs, used_up)
    else:
        changed |= _settle_and_queue(tick, blueprints, runs)
    changed |= _show_state(tick, blueprints, runs)
    if changed:
        return True
    if not _is_over(blueprints, runs):
        return False
    remedy = Next.AS_BEFORE if used_up else renew(tick, blueprints, runs)
    if remedy is not Next.AS_BEFORE:
        return remedy is Next.RETRY
    return _finish_stage(tick, stage, blueprints, runs)


def _runs_of(tick: Tick, blueprints: list[BlueprintRow]) -> list[RunRow]:
    ids = {b.id for b in blueprints}
    return [r for r in tick.store.runs(tick.id) if r.blueprint_id in ids]


def _make_runs(tick: Tick, blueprints: list[BlueprintRow], runs: list[RunRow]) -> bool:
    have = Counter(r.blueprint_id for r in runs)
    missing = [
        b
        for b in blueprints
        if b.review is ReviewStatus.APPROVED and have[b.id] < len(b.blueprint.seeds)
    ]
    for blueprint in missing:
        tick.store.ensure_runs(blueprint.id)
    return bool(missing)


def _settle_and_queue(tick: Tick, blueprints: list[BlueprintRow], runs: list[RunRow]) -> bool:
    """Runs without a live attempt either get one (within the capacity) or end."""
    by_id, of_run = {b.id: b for b in blueprints}, {r.id: r for r in runs}
    work = tick.store.pending_work(tick.id)
    room = AHEAD * tick.campaign.capacity - _able(work, by_id, of_run)
    before = _by_run(work)
    ours = [r for r in work.runs_without_live_attempt if r.id in of_run]
    changed = _cancel_rejected(tick, by_id, runs)
    for run in sorted(ours, key=lambda r: -_cost(by_id[r.blueprint_id])):
        blueprint = by_id[run.blueprint_id]
        attempts = before.get(run.id, [])
        if not attempts and room <= 0:
            continue  # most runs of a large stage
        limit = blueprint.blueprint.limits.max_attempts
        if attempts and attempts[-1].stop_reason is not None:
            # However the attempt came to its end (its host may be lost): nobody wants another one.
            _end(tick, run, RunState.CANCELLED, attempts[-1].stop_reason)
            changed = True
            continue
        if blueprint.review is ReviewStatus.REJECTED:
            continue
        remedy = after_failure(tick, blueprint, attempts)
        if remedy is Next.WAIT:
            continue
        tried = of_last_client(attempts)
        if remedy is Next.AS_BEFORE and not may_retry(tried, limit):
            _end_after(tick, run, tried, limit)
        elif blueprint.review is ReviewStatus.APPROVED and room > 0:
            _note_retry(tick, blueprint, attempts)
            tick.store.queue_attempt(run.id, tick.now)
            room -= 1
        else:
            continue
        changed = True
    return changed


def _by_run(work: PendingWork) -> dict[str, list[AttemptRow]]:
    """Run -> its attempts, first to last."""
    found: dict[str, list[AttemptRow]] = {}
    for attempts in work.attempts_by_state.values():
        for attempt in attempts:
            found.setdefault(attempt.run_id, []).append(attempt)
    return {run_id: sorted(own, key=lambda a: a.ordinal) for run_id, own in found.items()}


def _able(work: PendingWork, by_id: dict[str, BlueprintRow], of_run: dict[str, RunRow]) -> int:
    """Attempts under way, and queued ones that a worker may claim: one whose approval was voided by an edit waits."""
    count = 0
    for state, found in work.attempts_by_state.items():
        if state is AttemptState.QUEUED:
            ours = [by_id[of_run[a.run_id].blueprint_id] for a in found if a.run_id in of_run]
            count += sum(b.review is ReviewStatus.APPROVED for b in ours)
        elif state not in TERMINAL_ATTEMPTS:
            count += len(found)
    return count


def _cancel_rejected(tick: Tick, by_id: dict[str, BlueprintRow], runs: list[RunRow]) -> bool:
    """Runs of a blueprint that was rejected after they were made; one under way ends by itself first."""
    rejected = [
        r
        for r in runs
        if by_id[r.blueprint_id].review is ReviewStatus.REJECTED and r.state not in TERMINAL_RUNS
    ]
    if not rejected:
        return False
    idle = _waiting_ids(tick)
    found = [r for r in rejected if r.id in idle]
    for run in found:
        _end(tick, run, RunState.CANCELLED, "not run: the blueprint was rejected")
    return bool(found)


def _waiting_ids(tick: Tick) -> set[str]:
    """Runs that no worker holds: without a live attempt, or with a queued one."""
    work = tick.store.pending_work(tick.id)
    queued = {a.run_id for a in work.attempts_by_state.get(AttemptState.QUEUED, [])}
    return {r.id for r in work.runs_without_live_attempt} | queued


def _cost(row: BlueprintRow) -> int:
    """Episodes of a run: the long ones go first, so that the stage does not end on one of them alone."""
    config = row.blueprint.servers[0].train
    return config.batch.tasks * config.batch.repeat * config.stop_at_step


def _end(tick: Tick, run: RunRow, state: RunState, reason: str) -> None:
    tick.store.set_run_state(run.id, state, failure=None, reason=reason)


def _end_after(tick: Tick, run: RunRow, attempts: list[AttemptRow], max_attempts: int) -> None:
    last, reason = attempts[-1], reason_of(attempts, max_attempts)
    if last.state is AttemptState.CANCELLED:
        _end(tick, run, RunState.CANCELLED, reason)
    else:
        tick.store.set_run_state(run.id, RunState.FAILED, failure=last.failure, reason=reason)


def _note_retry(tick: Tick, blueprint: BlueprintRow, attempts: list[AttemptRow]) -> None:
    if not attempts:
        return
    last = attempts[-1]
    known = tick.store.deviations(tick.id)
    if any(d.attempt_id == last.id and d.data.get("remedy") == "new_attempt" for d in known):
        return
    why = last.reason or (last.failure.value if last.failure else last.state.value)
    tick.store.add_deviation(
        tick.id,
        f"a new attempt, from step 0, after attempt {last.ordinal} ended as {last.state.value}",
        {
            "remedy": "new_attempt",
            "why": why,
            "failure": last.failure.value if last.failure else None,
        },
        tick.now,
        blueprint_id=blueprint.id,
        attempt_id=last.id,
    )


def _used_up(tick: Tick) -> str:
    """Which budget of the runs is gone, in words; empty while none is."""
    if tick.wall_clock_is_up():
        return WALL_CLOCK
    return GPU_HOURS if tick.gpu_hours_are_up() else ""


def _cancel_waiting(tick: Tick, runs: list[RunRow], used_up: str) -> bool:
    """A budget is used: nothing new begins; what is under way may end, what waits for a person is asked to."""
    asked = _stop_blocked(tick, used_up)
    idle = _waiting_ids(tick)
    waiting = [r for r in runs if r.id in idle and r.state not in TERMINAL_RUNS]
    for run in waiting:
        attempts = tick.store.attempts_of_run(run.id)
        tried = bool(attempts) and attempts[-1].state in TERMINAL_ATTEMPTS
        reason = f"{used_up}, after: {reason_of(attempts, 0)}" if tried else used_up
        _end(tick, run, RunState.CANCELLED, reason)
    return bool(waiting) or asked


def _stop_blocked(tick: Tick, used_up: str) -> bool:
    blocked = tick.store.pending_work(tick.id).attempts_by_state.get(AttemptState.BLOCKED, [])
    found = [a for a in blocked if a.stop_reason is None]
    for attempt in found:
        tick.store.request_attempt_stop(attempt.id, used_up, tick.now)
    return bool(found)


def _show_state(tick: Tick, blueprints: list[BlueprintRow], runs: list[RunRow]) -> bool:
    """``awaiting_review`` while nothing can go on without a verdict (an edit voided it), else ``running``."""
    by_id, of_run = {b.id: b for b in blueprints}, {r.id: r for r in runs}
    undecided = any(b.review not in DECIDED for b in blueprints) or awaits_person(tick)
    if undecided and not _able(tick.store.pending_work(tick.id), by_id, of_run):
        return tick.enter(CampaignState.AWAITING_REVIEW)
    return tick.enter(CampaignState.RUNNING)


def _is_over(blueprints: list[BlueprintRow], runs: list[RunRow]) -> bool:
    if any(b.review not in DECIDED for b in blueprints):
        return False
    have = Counter(r.blueprint_id for r in runs)
    planned = all(
        have[b.id] >= len(b.blueprint.seeds)
        for b in blueprints
        if b.review is ReviewStatus.APPROVED
    )
    return planned and all(r.state in TERMINAL_RUNS for r in runs)


def _finish_stage(
    tick: Tick, stage: StageRow, blueprints: list[BlueprintRow], runs: list[RunRow]
) -> bool:
    failed = [r for r in runs if r.state is RunState.FAILED]
    if failed and not any(r.state is RunState.SUCCEEDED for r in runs):
        text = _all_failed(stage, failed)
        # What nobody can mend would fail again after a resume: the planner concludes, and the report says what failed.
        if not past_mending(tick, failed) and not _was_blocked_for(tick, text):
            return tick.enter(CampaignState.BLOCKED, failure=text)
    analysis = analyse(tick.records())
    tick.store.set_stage_state(stage.id, StageState.ANALYSED, dict(evidence_of(analysis)))
    return True


def _all_failed(stage: StageRow, failed: list[RunRow]) -> str:
    reason, count = Counter(r.reason or "no reason recorded" for r in failed).most_common(1)[0]
    return (
        f"stage {stage.ordinal} ({stage.kind}): none of its runs succeeded, {len(failed)} failed; most often ({count}): {reason}\n"
        "hint: `a3r run list` and `a3r run logs` show why; then `a3r campaign resume` goes on without these results, "
        "`a3r campaign stop` ends with a partial report"
    )


def _was_blocked_for(tick: Tick, text: str) -> bool:
    """A person saw exactly this and resumed."""
    return any(
        e.kind == f"campaign_{CampaignState.BLOCKED.value}" and e.data.get("failure") == text
        for e in tick.events()
    )
