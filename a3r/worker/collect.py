"""Proof that an attempt did what it was to do, and its finish report. Success is records that agree, never an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from a3r.blueprints.model import Blueprint, ServerSpec
from a3r.core.wire import AttemptSpec, EvalRound, FinishReport
from a3r.worker.folder import AttemptFolder, Memo
from a3r.worker.places import records
from a3r.worker.prepare import gated_step
from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import Status


def check_proof(
    folder: AttemptFolder,
    spec: AttemptSpec,
    blueprint: Blueprint,
    config: TrainConfig,
    status: Status,
    *,
    stopped_at: int | None = None,
) -> list[str]:
    """What speaks against success, in words; empty = proven. ``config`` and ``status`` are the server's own.

    ``stopped_at``: the last step as a stop rule of the blueprint set it; None = the planned one.
    """
    last = blueprint.servers[0].train.stop_at_step
    planned = last if stopped_at is None else min(last, stopped_at)
    problems: list[str] = []
    if config.seed != spec.seed:
        problems.append(f"the server's seed is {config.seed}, not {spec.seed}")
    # A server that was told to stop may have passed that step already.
    stops = config.stop_at_step == planned if stopped_at is None else config.stop_at_step <= planned
    if not stops or status.step != planned:
        problems.append(
            f"the server is at step {status.step} of {config.stop_at_step}, not {planned}"
        )
    steps = [int(line["step"]) for line in folder.steps()]
    if steps != list(range(1, planned + 1)):
        problems.append(
            f"{len(steps)} step records are on file, not one for each of {planned} steps"
        )
    # A round at a step that a stop rule left out was never due.
    due = [r for r in blueprint.evaluator.rounds if r == "final" or gated_step(r) <= planned]
    for name in due:
        problems += check_round(folder.eval_round(name), name, blueprint)
    final = folder.eval_round("final")
    if final is not None and final.fingerprint != status.fingerprint:
        problems.append("the final round was answered by other weights than the server holds now")
    return problems


@dataclass(frozen=True)
class ServerEnd:
    """What a further server itself says of its run."""

    server: ServerSpec
    config: TrainConfig
    status: Status

    def told(self) -> dict[str, Any]:
        """For the record, as JSON."""
        version = self.status.policy_version
        return {
            "seed": self.config.seed,
            "trains": self.server.trains,
            "steps": self.status.step,
            "policy_version": version.n if version else None,
            "final_fingerprint": self.status.fingerprint,
        }


def check_other(end: ServerEnd, spec: AttemptSpec, *, stopped_at: int | None = None) -> list[str]:
    """What speaks against a further server; empty = proven. One that only answers was never trained."""
    server, name = end.server, end.server.name
    problems: list[str] = []
    if end.config.seed != spec.seed:
        problems.append(f"the seed of the server {name!r} is {end.config.seed}, not {spec.seed}")
    planned = server.train.stop_at_step if server.trains else 0
    if end.status.step != planned and not (server.trains and stopped_at is not None):
        problems.append(f"the server {name!r} is at step {end.status.step}, not {planned}")
    known = server.model_fingerprint if server.train.engine != "toy" else ""
    if known and not server.trains and end.status.fingerprint != known:
        problems.append(f"the weights of {name!r} are {end.status.fingerprint}, not {known}")
    return problems


def check_round(found: EvalRound | None, name: str, blueprint: Blueprint) -> list[str]:
    """What is wrong with a round, in words; empty = it is complete."""
    if found is None:
        return [f"the round {name!r} is not there"]
    problems: list[str] = []
    scored = sum(item.reward is not None for item in found.items)
    if scored != found.planned or found.planned != blueprint.evaluator.items:
        reasons = sorted({item.reason for item in found.items if item.reward is None})
        problems.append(
            f"the round {name!r} scored {scored} of {blueprint.evaluator.items} items ({', '.join(reasons)})"
        )
    if name == "initial" and found.policy_version != 0:
        problems.append(f"the initial round was answered by version {found.policy_version}, not 0")
    base = blueprint.servers[0]
    known = base.model_fingerprint if base.train.engine != "toy" else ""
    if name == "initial" and known and found.fingerprint != known:
        problems.append(f"the base model's weights are {found.fingerprint}, not {known}")
    return problems


def proof(folder: AttemptFolder, config: TrainConfig, status: Status) -> dict[str, Any]:
    """What the server itself says of the run."""
    initial = folder.eval_round("initial")
    version = status.policy_version
    return {
        "seed": config.seed,
        "steps": status.step,
        "policy_version": version.n if version else None,
        "incarnation": version.incarnation if version else None,
        "initial_fingerprint": initial.fingerprint if initial else None,
        "final_fingerprint": status.fingerprint,
    }


def finish_report(
    folder: AttemptFolder, spec: AttemptSpec, memo: Memo, proven: dict[str, Any], ended_at: float
) -> FinishReport:
    """The report of an attempt all of whose processes have ended."""
    generations: dict[str, int] = {}
    cpu_s: dict[str, float | None] = {}
    for process in folder.processes():
        role = process.name.rpartition(".")[0]
        generations[role] = generations.get(role, 0) + 1
        used, known = process.exit().cpu_s, cpu_s.get(role, 0.0)
        # An unknown part makes the sum unknown.
        cpu_s[role] = None if used is None or known is None else known + used
    summary: dict[str, Any] = {
        **proven,
        "step": memo.step,
        "environments": records(folder),
        "generations": generations,
        "engine_restarts": sum(memo.engine_restarts.values()),
        "wall_s": ended_at - memo.started_at,
        "cpu_s": cpu_s,
        "started_at": memo.started_at,
        "ended_at": ended_at,
    }
    if memo.stopping_at is not None:
        summary |= {"stopped_at": memo.stopping_at, "stop_rule": memo.stop_rule}
    outcome = memo.outcome
    assert outcome in ("succeeded", "failed", "cancelled")
    return FinishReport(
        fencing_token=spec.fencing_token,
        outcome=outcome,
        failure=memo.failure,
        reason=memo.reason,
        summary=summary,
    )
