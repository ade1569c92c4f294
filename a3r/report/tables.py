"""Rows of the report's plain tables; text from outside is escaped by the template."""

from __future__ import annotations

import json
from typing import Any

from a3r.report.gains import RunGain
from a3r.report.numbers import UNKNOWN, plain
from a3r.report.records import Records, RunRecord

OUTCOMES = ("succeeded", "failed", "cancelled", "not run")


def stage_counts(records: Records, gains: list[RunGain]) -> list[dict[str, Any]]:
    """Planned = succeeded + failed + cancelled + not run, by stage and in total."""
    rows = [
        _counts(f"{stage.ordinal} {stage.kind}", [g for g in gains if g.stage == stage.ordinal])
        for stage in records.stages
    ]
    return [*rows, _counts("total", gains)]


def _counts(name: str, gains: list[RunGain]) -> dict[str, Any]:
    counts = {state.replace(" ", "_"): sum(g.state == state for g in gains) for state in OUTCOMES}
    return {
        "name": name,
        "planned": len(gains),
        **counts,
        "used": sum(g.gain is not None for g in gains),
    }


def run_rows(records: Records, gains: list[RunGain]) -> list[dict[str, Any]]:
    """One row a planned run."""
    runs = {run.id: run for run in records.runs}
    return [
        {
            "name": f"{g.blueprint} seed {g.seed}",
            "stage": g.stage,
            "seed": g.seed,
            "state": g.state,
            "initial": g.initial,
            "final": g.final,
            "gain": g.gain,
            "missing": g.missing,
            **_process(records, runs.get(g.run_id)),
        }
        for g in gains
    ]


def _process(records: Records, run: RunRecord | None) -> dict[str, Any]:
    if run is None:
        return {"proven": UNKNOWN, "attempts": 0, "steps": 0, "minutes": UNKNOWN}
    attempt = run.accepted()
    seconds = None
    if attempt and attempt.started_at is not None and attempt.finished_at is not None:
        seconds = attempt.finished_at - attempt.started_at
    return {
        "proven": attempt.summary.get("seed", UNKNOWN) if attempt else UNKNOWN,
        "attempts": len(run.attempts),
        "steps": len(records.steps_of(run.id)),
        "minutes": plain(seconds / 60 if seconds is not None else None, 1),
    }


def deviation_rows(records: Records) -> list[dict[str, Any]]:
    """Deviations in order of time."""
    return [
        {"at": d.at, "subject": d.subject, "what": d.what, "detail": compact(d.data)}
        for d in sorted(records.deviations, key=lambda d: d.at)
    ]


def review_rows(records: Records) -> list[dict[str, Any]]:
    """Verdicts in order of time."""
    names = {b.id: b.name for b in records.blueprints}
    return [
        {
            "at": r.at,
            "by": r.by,
            "blueprint": names.get(r.blueprint_id, r.blueprint_id),
            "hash": r.content_hash[:12],
            "verdict": f"{r.verdict} (voided by an edit)" if r.voided else r.verdict,
            "note": r.note,
        }
        for r in sorted(records.reviews, key=lambda r: r.at)
    ]


def environment_rows(records: Records) -> list[tuple[str, str]]:
    """What the campaign ran on: name -> text."""
    return [
        (name, compact(value) if isinstance(value, dict) else str(value))
        for name, value in records.campaign.environment.items()
    ]


def compact(value: Any) -> str:
    """``key value, key value`` of a JSON object; nested values stay JSON."""
    if not isinstance(value, dict):
        return str(value)
    pairs: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
    return ", ".join(
        f"{k} {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}"
        for k, v in pairs.items()
    )
