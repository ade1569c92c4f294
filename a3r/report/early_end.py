"""Runs that a stop rule of their blueprint ended early: which step was their last, and whether the rule was really met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from a3r.blueprints.model import StopRule
from a3r.blueprints.stop_rules import broken_rule
from a3r.report.records import BlueprintRecord, RunRecord, StepRecord


def last_step(blueprint: BlueprintRecord, run: RunRecord) -> int | None:
    """The step that a complete run ends with: the planned one, or an earlier one where a declared rule ended it. None: no server."""
    planned, early = blueprint.stop_at_step, _stopped_at(run)
    if planned is None or early is None or not _rules(blueprint):
        return planned
    return min(planned, early)


def early_end_fault(blueprint: BlueprintRecord, run: RunRecord, steps: Sequence[StepRecord]) -> str:
    """Why an early end is not one by the blueprint's rules; empty when it is, and when the run went to its planned end."""
    early, planned = _stopped_at(run), blueprint.stop_at_step
    if early is None or planned is None or early >= planned:
        return ""
    rules = [r for r in _rules(blueprint) if r.outcome == "stop"]
    rows = [s.model_dump(mode="json") for s in steps if s.step <= early]
    if any(broken_rule(rules, rows[: n + 1]) for n in range(len(rows))):
        return ""
    return (
        f"ended at step {early} of {planned}, and its own steps meet no stop rule of its blueprint"
    )


def _stopped_at(run: RunRecord) -> int | None:
    attempt = run.accepted()
    found = None if attempt is None else attempt.summary.get("stopped_at")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _rules(blueprint: BlueprintRecord) -> list[StopRule]:
    """Rules that can not be read end nothing."""
    rules: list[Any] = blueprint.document.get("stop_rules") or []
    try:
        return [StopRule.model_validate(rule) for rule in rules]
    except ValidationError:
        return []
