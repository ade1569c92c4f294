"""The blueprint's stop rules: whether the steps so far end the run before its planned end. Pure; rules were approved before.

The worker carries them out; the report asks again whether a run that ended early was right to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from a3r.blueprints.model import StopRule


def broken_rule(rules: Sequence[StopRule], steps: Sequence[dict[str, Any]]) -> StopRule | None:
    """The first rule that the last steps meet; None while the run may go on.

    A step without the metric (None) meets no rule but ends a series, except ``not_finite`` of a metric that was NaN: JSON has
    none, so a step that was rolled back because of it counts.

    Args:
        rules: of the blueprint, in order.
        steps: StepMetrics as JSON, oldest first.
    """
    for rule in rules:
        last = steps[-rule.steps :]
        if len(last) == rule.steps and all(_meets(rule, step) for step in last):
            return rule
    return None


def _meets(rule: StopRule, step: dict[str, Any]) -> bool:
    value = step.get(rule.metric)
    if rule.when == "not_finite":
        return bool(step.get("rolled_back")) if value is None else not math.isfinite(float(value))
    if value is None or not math.isfinite(float(value)):
        return False
    return float(value) > rule.value if rule.when == "above" else float(value) < rule.value


def rule_words(rule: StopRule) -> str:
    """The rule as a phrase: ``entropy below 0.1 for 5 steps in a row``."""
    bound = "" if rule.when == "not_finite" else f" {rule.value:g}"
    when = rule.when.replace("_", " ")
    row = f"for {rule.steps} steps in a row" if rule.steps > 1 else "at one step"
    why = f" ({rule.reason})" if rule.reason else ""
    return f"{rule.metric} {when}{bound} {row}{why}"
