"""The chronological trace: who did what when, with which outcome (the columns of the paper's table 4)."""

from __future__ import annotations

from dataclasses import dataclass

from a3r.report.gains import RunGain
from a3r.report.numbers import signed
from a3r.report.records import AttemptRecord, Records, RunRecord


@dataclass(frozen=True)
class TraceLine:
    """One line; ``artifact`` and ``outcome`` may hold outside text and are escaped by the template."""

    at: float
    actor: str
    artifact: str
    outcome: str


def trace(records: Records, gains: list[RunGain]) -> list[TraceLine]:
    """Campaign, stages, reviews, attempts, deviations and decisions in order of time; raw events stay in the records."""
    campaign = records.campaign
    lines = [
        TraceLine(campaign.created_at, "user", f"goal {campaign.name}", "campaign started"),
        *_stages(records),
        *_reviews(records),
        *_attempts(records, gains),
        *(
            TraceLine(d.at, "worker", _name(records, d.subject), f"deviation: {d.what}")
            for d in records.deviations
        ),
        *(TraceLine(d.at, "leader", f"decision: {d.what}", d.why) for d in records.decisions),
    ]
    return sorted(lines, key=lambda line: line.at)


def run_label(records: Records, run: RunRecord) -> str:
    """Blueprint's name and seed."""
    return f"{records.blueprint(run.blueprint_id).name} seed {run.seed}"


def _stages(records: Records) -> list[TraceLine]:
    out: list[TraceLine] = []
    for stage in records.stages:
        blueprints = [b for b in records.blueprints if b.stage_id == stage.id]
        runs = sum(len(b.seeds) for b in blueprints)
        outcome = f"planned {len(blueprints)} blueprints, {runs} runs (plan {stage.plan_hash[:12]})"
        name = f"stage {stage.ordinal} ({stage.kind})"
        out.append(TraceLine(stage.created_at, "leader", name, outcome))
    return out


def _reviews(records: Records) -> list[TraceLine]:
    names = {b.id: b.name for b in records.blueprints}
    return [
        TraceLine(
            r.at,
            f"reviewer {r.by}",
            f"blueprint {names.get(r.blueprint_id, r.blueprint_id)} ({r.content_hash[:12]})",
            f"{r.verdict}: {r.note}" if r.note else r.verdict,
        )
        for r in records.reviews
    ]


def _attempts(records: Records, gains: list[RunGain]) -> list[TraceLine]:
    by_run = {g.run_id: g for g in gains}
    out: list[TraceLine] = []
    for run in records.runs:
        for attempt in run.attempts:
            at = attempt.finished_at or attempt.started_at
            if at is not None:
                name = f"run {run_label(records, run)}, attempt {attempt.ordinal}"
                out.append(
                    TraceLine(
                        at,
                        "leader" if attempt.reused else f"worker {attempt.worker}",
                        name,
                        _outcome(run, attempt, by_run.get(run.id)),
                    )
                )
    return out


def _outcome(run: RunRecord, attempt: AttemptRecord, gain: RunGain | None) -> str:
    if attempt.id == run.accepted_attempt and gain is not None:
        told = f"gain {signed(gain.gain)}" if not gain.excluded else f"excluded: {gain.excluded}"
        return f"reused from {attempt.reused}: {told}" if attempt.reused else told
    parts = [attempt.state, attempt.failure or "", attempt.reason]
    return ": ".join(part for part in parts if part)


def _name(records: Records, subject: str) -> str:
    for run in records.runs:
        if subject == run.id or any(a.id == subject for a in run.attempts):
            return f"run {run_label(records, run)}"
    for blueprint in records.blueprints:
        if blueprint.id == subject:
            return f"blueprint {blueprint.name}"
    return subject
