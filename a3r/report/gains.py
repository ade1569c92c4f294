"""The gain of each run, or the reason why it has none. Missing is counted and excluded, never 0."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

from a3r.core.types import TERMINAL_RUNS, RunState
from a3r.report.cell_clients import Definition, definition_of, newest_definitions, origins
from a3r.report.early_end import early_end_fault, last_step
from a3r.report.question import Question
from a3r.report.records import BlueprintRecord, EvalRecord, Records, RunRecord, Scalar, StageRecord
from a3r.report.referee import referee
from a3r.stats.intervals import mean

_Key: TypeAlias = tuple[Scalar, Scalar, int]
"""(condition, level, seed)."""


@dataclass(frozen=True)
class RunGain:
    """One planned run: ``gain`` is None exactly when ``excluded`` says why."""

    run_id: str
    """Empty when no run was ever made of this blueprint and seed."""
    blueprint: str
    stage: int
    condition: Scalar
    level: Scalar
    """None when the blueprint does not set the question's factor (then it is excluded); a number when a minimum is asked."""
    seed: int
    fresh: bool
    """Planned by a replicate stage, with a seed that no earlier stage planned in this cell."""
    state: str
    """``succeeded``, ``failed``, ``cancelled`` or ``not run``."""
    initial: float | None
    final: float | None
    gain: float | None
    """Final minus version 0, or the final value alone when the goal's ``measure`` is ``final``; larger is better."""
    missing: int
    """Items without a reward, both rounds together."""
    excluded: str
    client: str = ""
    """Tree hash of the client that the accepted attempt ran, after repairs; the blueprint's own without one."""
    client_origin: str = ""
    """Tree hash of the client that it was repaired from; ``client`` when it never was."""


def run_gains(records: Records, question: Question) -> list[RunGain]:
    """One entry a planned run (blueprint x seed, run or not), in order of planning."""
    weights = _common_fingerprints(records)
    newest = newest_definitions(records, lambda b: cell_of(b, question))
    verdicts, first = referee(records), origins(records)
    used: set[_Key] = set()
    planned: set[_Key] = set()
    out: list[RunGain] = []
    for stage, blueprint, seed, run in _planned(records):
        condition, level = cell_of(blueprint, question)
        key = (condition, level, seed)
        measured = _measure(records, blueprint, seed, run, question)
        defined = definition_of(records, blueprint, run)
        excluded = measured.excluded or _cell_fault(defined, level, newest.get(key[:2]))
        if not excluded and run is not None and run.id in verdicts:
            excluded = verdicts[run.id].reason
        if not excluded and measured.fingerprint != weights[_model_of(blueprint)]:
            excluded = "started from other weights than the other runs"
        if not excluded and key in used:
            excluded = "this seed already has a result in this cell"
        if not excluded:
            used.add(key)
        out.append(
            RunGain(
                run_id=run.id if run else "",
                blueprint=blueprint.name,
                stage=stage.ordinal,
                condition=condition,
                level=level,
                seed=seed,
                fresh=stage.kind == "replicate" and key not in planned,
                state=_outcome(run),
                initial=measured.initial,
                final=measured.final,
                gain=None if excluded else measured.value,
                missing=measured.missing,
                excluded=excluded,
                client=defined.client,
                client_origin=first.get(defined.client, defined.client),
            )
        )
        planned.add(key)
    return out


def _planned(
    records: Records,
) -> list[tuple[StageRecord, BlueprintRecord, int, RunRecord | None]]:
    """Every blueprint x seed by stage, with its run if it has one; runs that nobody planned come last of theirs."""
    out: list[tuple[StageRecord, BlueprintRecord, int, RunRecord | None]] = []
    for blueprint in sorted(records.blueprints, key=lambda b: records.stage(b.stage_id).ordinal):
        stage = records.stage(blueprint.stage_id)
        runs = {r.seed: r for r in records.runs if r.blueprint_id == blueprint.id}
        seeds = list(blueprint.seeds) + [s for s in sorted(runs) if s not in blueprint.seeds]
        out.extend((stage, blueprint, seed, runs.get(seed)) for seed in seeds)
    return out


def _outcome(run: RunRecord | None) -> str:
    """``succeeded``, ``failed``, ``cancelled`` or ``not run``: the four add up to planned."""
    return run.state if run is not None and run.state in TERMINAL_RUNS else "not run"


def cell_of(blueprint: BlueprintRecord, question: Question) -> tuple[Scalar, Scalar]:
    """(condition, level) of a blueprint; the level is None when it does not set the factor (for a minimum: to a number)."""
    level = blueprint.factors.get(question.factor)
    if question.asks_minimum:
        number = isinstance(level, int | float) and not isinstance(level, bool)
        level = float(level) if number and level is not None else None
    return (blueprint.factors.get(question.across) if question.across else None), level


@dataclass(frozen=True)
class _Measured:
    initial: float | None = None
    final: float | None = None
    value: float | None = None
    missing: int = 0
    fingerprint: str = ""
    excluded: str = ""


def _measure(
    records: Records,
    blueprint: BlueprintRecord,
    seed: int,
    run: RunRecord | None,
    question: Question,
) -> _Measured:
    if run is None or run.state != RunState.SUCCEEDED:
        return _Measured(excluded=_no_result(blueprint, run))
    if seed not in blueprint.seeds:
        return _Measured(excluded="nobody planned this seed")
    fault = _proof_fault(records, blueprint, run)
    if fault:
        return _Measured(excluded=fault)
    rounds = {name: records.round(run.id, name) for name in ("initial", "final")}
    initial, final = rounds["initial"], rounds["final"]
    if initial is None or final is None:
        absent = ", ".join(name for name, found in rounds.items() if found is None)
        return _Measured(excluded=f"no {absent} evaluation round")
    missing = missing_items(initial) + missing_items(final)
    fault = _rounds_fault(blueprint, last_step(blueprint, run), initial, final, question)
    if fault:
        return _Measured(missing=missing, excluded=fault)
    before, after = _round_mean(initial), _round_mean(final)
    sign = -1.0 if question.direction == "minimize" else 1.0
    value = after if question.measure == "final" else after - before
    return _Measured(before, after, sign * value, missing, initial.fingerprint)


def _no_result(blueprint: BlueprintRecord, run: RunRecord | None) -> str:
    if run is None:
        review = blueprint.review
        return "not run" if review == "approved" else f"not run (review: {review})"
    if run.state == RunState.FAILED:
        return f"failed: {run.reason or 'no reason recorded'}"
    if run.state == RunState.CANCELLED:
        return f"cancelled: {run.reason or 'no reason recorded'}"
    return f"not run ({run.reason})" if run.reason else "not run"


def _proof_fault(records: Records, blueprint: BlueprintRecord, run: RunRecord) -> str:
    """Why the run's own record does not prove that it is what was planned."""
    attempt = run.accepted()
    if attempt is None:
        return "no accepted attempt"
    seed = attempt.summary.get("seed")
    if seed is None:
        return "the run's own record does not state its seed"
    if seed != run.seed:
        return f"planned seed {run.seed}, but the run's own record says {seed!r}"
    wanted = last_step(blueprint, run)
    steps = records.steps_of(run.id)
    if wanted is not None and [s.step for s in steps] != list(range(1, wanted + 1)):
        return f"{len({s.step for s in steps})} of {wanted} step records"
    return early_end_fault(blueprint, run, steps)


def _rounds_fault(
    blueprint: BlueprintRecord,
    last: int | None,
    initial: EvalRecord,
    final: EvalRecord,
    question: Question,
) -> str:
    evaluator: dict[str, object] = blueprint.document["evaluator"]
    if initial.policy_version != 0:
        return f"the initial round was played at version {initial.policy_version}, not 0"
    if last is not None and (initial.step, final.step) != (0, last):
        return f"the rounds were played at steps {initial.step} and {final.step}, not 0 and {last}"
    for found in (initial, final):
        if (found.item_set_hash, found.evaluator_hash) != (
            evaluator["item_set_hash"],
            evaluator["source_hash"],
        ):
            return f"the {found.name} round used other items or another scorer than planned"
        ids = {item.item_id for item in found.items}
        if len(ids) != len(found.items) or len(ids) > found.planned:
            return f"the {found.name} round counts an item twice"
        missing = missing_items(found)
        if missing > question.missing_allowed * found.planned:
            return f"the {found.name} round misses {missing} of {found.planned} items"
    if initial.planned != final.planned:
        return "the two rounds planned different numbers of items"
    return ""


def missing_items(found: EvalRecord) -> int:
    """Planned items without a valid reward: not reported, without reward, or played by another version."""
    return found.planned - len(_scored(found))


def _scored(found: EvalRecord) -> list[float]:
    return [
        i.reward
        for i in found.items
        if i.reward is not None and i.policy_version == found.policy_version
    ]


def _round_mean(found: EvalRecord) -> float:
    return mean(_scored(found))


def _model_of(blueprint: BlueprintRecord) -> str:
    """The base model that a blueprint names; a model may be a factor, so weights are compared within one."""
    servers: list[dict[str, Any]] = blueprint.document.get("servers") or [{}]
    return str(servers[0].get("train", {}).get("model", {}).get("path", ""))


def _common_fingerprints(records: Records) -> dict[str, str]:
    """Base weights of most runs of each model; the first in order of the records when several are equally common."""
    models = {r.id: _model_of(records.blueprint(r.blueprint_id)) for r in records.runs}
    counts: dict[str, Counter[str]] = {_model_of(b): Counter() for b in records.blueprints}
    for found in records.evals:
        if found.name == "initial" and found.run_id in models:
            counts[models[found.run_id]][found.fingerprint] += 1
    return {model: c.most_common(1)[0][0] if c else "" for model, c in counts.items()}


def _cell_fault(defined: Definition, level: Scalar, newest: Definition | None) -> str:
    if level is None:
        return "the blueprint does not set the question's factor"
    if newest is None or defined == newest:
        return ""
    if defined.cell_hash != newest.cell_hash:
        return "an older definition of this cell (other cell hash)"
    return (
        "ran an earlier revision of the client; this cell's results come from the newest one alone"
    )
