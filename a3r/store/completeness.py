"""What a success must show, as a pure function: every step, every declared evaluation round, the right seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from a3r.blueprints.model import Blueprint
from a3r.core.wire import EvalRound

REQUIRED_ROUNDS = ("initial", "final")


def missing_for_success(
    blueprint: Blueprint,
    seed: int,
    *,
    steps: Sequence[int],
    rounds: Sequence[EvalRound],
    summary: dict[str, Any],
) -> list[str]:
    """Return, in words, what is not there or not as the blueprint says; empty = complete.

    ``steps`` are those of the first server (1 .. ``stop_at_step``). ``summary["seed"]`` is checked where it is given.
    """
    last = last_step(blueprint, summary)
    missing = _missing_steps(steps, last)
    by_name = {r.name: r for r in rounds}
    for name in dict.fromkeys((*REQUIRED_ROUNDS, *blueprint.evaluator.rounds)):
        if name.startswith("step-") and int(name.removeprefix("step-")) > last:
            continue  # a stop rule left it out
        found = by_name.get(name)
        if found is None:
            missing.append(f"evaluation round {name!r} is missing")
            continue
        missing += [f"evaluation round {name!r} {why}" for why in _faults(found, blueprint)]
        wanted = {"initial": 0, "final": last}.get(name, found.step)
        if found.step != wanted:
            missing.append(f"evaluation round {name!r} is of step {found.step}, expected {wanted}")
    if "seed" in summary and summary["seed"] != seed:
        missing.append(f"the server ran with seed {summary['seed']!r}, the run's is {seed}")
    return missing


def last_step(blueprint: Blueprint, summary: dict[str, Any]) -> int:
    """The step that the run had to come to: the planned one, or where a stop rule of the blueprint ended it."""
    planned = blueprint.servers[0].train.stop_at_step
    stopped = summary.get("stopped_at")
    allowed = any(rule.outcome == "stop" for rule in blueprint.stop_rules)
    if allowed and isinstance(stopped, int) and stopped >= 1:
        return min(planned, stopped)
    return planned


def _missing_steps(steps: Sequence[int], last: int) -> list[str]:
    planned, there = set(range(1, last + 1)), set(steps)
    absent, beyond = sorted(planned - there), sorted(there - planned)
    found: list[str] = []
    if absent:
        found.append(f"{len(absent)} of {last} steps have no record (first: {absent[0]})")
    if beyond:  # a report of such a run would not verify
        found.append(f"there are records of steps that are not 1 to {last} (first: {beyond[0]})")
    return found


def _faults(found: EvalRound, blueprint: Blueprint) -> list[str]:
    evaluator = blueprint.evaluator
    faults: list[str] = []
    if found.planned != evaluator.items:
        faults.append(f"planned {found.planned} items, the blueprint says {evaluator.items}")
    if found.item_set_hash != evaluator.item_set_hash:
        faults.append("is of another item set than the blueprint's")
    if found.evaluator_hash != evaluator.source_hash:
        faults.append("was scored by other code than the blueprint's")
    if len({item.item_id for item in found.items}) != found.planned:
        faults.append(f"has {len(found.items)} of {found.planned} items")
    unscored = [item for item in found.items if item.reward is None]
    if unscored:
        faults.append(
            f"has {len(unscored)} items without a score (first: {unscored[0].reason or unscored[0].item_id})"
        )
    mixed = [
        i for i in found.items if i.reward is not None and i.policy_version != found.policy_version
    ]
    if mixed:
        faults.append(
            f"has {len(mixed)} items of another policy version than {found.policy_version}"
        )
    return faults
