"""Every rule on every run, and the grade that follows."""

from __future__ import annotations

from typing import Any

from a3r.report.records import EvalRecord, Records, RunRecord, StepRecord
from a3r.report.referee.rules import RULES
from a3r.report.referee.verdict import Finding, Grade, RefereeVerdict, Unchecked
from a3r.report.referee.view import RunView, known_fingerprint

_ORDER = list(Grade)


def referee(records: Records) -> dict[str, RefereeVerdict]:
    """Run id -> verdict, for every run with an accepted attempt (others have no evidence), in the order of the records.

    The same records give the same verdicts; nothing but the records is looked at.
    """
    views = _views(records)
    return {run_id: judge(view) for run_id, view in views.items()}


def judge(view: RunView) -> RefereeVerdict:
    """Apply every rule to one run."""
    findings: list[Finding] = []
    unchecked: dict[str, str] = {}
    for rule in RULES:
        answer = rule.check(view)
        if isinstance(answer, Finding):
            findings.append(answer)
        elif isinstance(answer, Unchecked):
            unchecked[rule.name] = answer.why
    findings.sort(key=lambda f: -_ORDER.index(f.grade))
    worst = findings[0].grade if findings else Grade.VALID
    return RefereeVerdict(
        run_id=view.run.id,
        grade=Grade.VALID if worst is Grade.NOTE else worst,
        findings=tuple(findings),
        unchecked=unchecked,
    )


def _views(records: Records) -> dict[str, RunView]:
    steps: dict[str, list[StepRecord]] = {}
    for step in records.steps:
        steps.setdefault(step.run_id, []).append(step)
    rounds: dict[str, dict[str, EvalRecord]] = {}
    for found in records.evals:
        rounds.setdefault(found.run_id, {}).setdefault(found.name, found)
    metric: dict[str, Any] = records.campaign.goal_spec.get("metric") or {}
    sign = -1.0 if metric.get("direction") == "minimize" else 1.0
    blueprints = {b.id: b for b in records.blueprints}
    lasting: dict[tuple[str, str], list[RunRecord]] = {}
    views: dict[str, RunView] = {}
    for run in records.runs:
        attempt = run.accepted()
        if attempt is None:
            continue
        blueprint, own = blueprints[run.blueprint_id], steps.get(run.id, [])
        servers: list[dict[str, Any]] = blueprint.document.get("servers", [])
        views[run.id] = RunView(
            run=run,
            attempt=attempt,
            blueprint=blueprint,
            steps=own,
            rounds=rounds.get(run.id, {}),
            sign=sign,
            twins=_twins(run, blueprint.cell_hash, own, lasting),
            train=servers[0].get("train", {}) if servers else {},
        )
    return views


def _twins(
    run: RunRecord,
    cell_hash: str,
    steps: list[StepRecord],
    lasting: dict[tuple[str, str], list[RunRecord]],
) -> tuple[str, ...]:
    """Earlier runs of the cell with another seed and the same last weights; notes this one for those to come."""
    last = known_fingerprint(steps[-1].fingerprint) if steps else ""
    if not last or not any(s.updated for s in steps):
        return ()
    known = lasting.setdefault((cell_hash, last), [])
    twins = tuple(other.id for other in known if other.seed != run.seed)
    known.append(run)
    return twins
