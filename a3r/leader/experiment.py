"""Turns one row of a stage's design into a blueprint, with the client's code made and packed before anyone reviews it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.blueprints.artifact import pack_tree
from a3r.blueprints.model import (
    Blueprint,
    ClientSpec,
    EvaluatorSpec,
    MetricSpec,
    ServerSpec,
)
from a3r.core.hashing import canonical_json, tree_hash
from a3r.leader.factors import Scalar, short_label
from a3r.leader.generate import ENTRY, generate_client
from a3r.leader.goal import GoalSpec
from a3r.leader.model_files import find_model, weights_fingerprint
from a3r.leader.plan import DesignRow, StagePlan
from a3r.leader.tasks import TASKS
from a3r.leader.training import CellSettings, cell_settings, rounds_of, train_config
from a3r.leader.verl_weights import verl_fingerprint
from swarm.protocol.config import TrainConfig

PARALLEL = 64
ITEM_SEED = 0


@dataclass(frozen=True, slots=True)
class SealedBundle:
    """A sealed evaluator, packed and kept."""

    artifact: str
    """sha256 of its tar in the store."""
    tree_hash: str
    item_set_hash: str
    protocol: str


@dataclass(frozen=True, slots=True)
class ClientBundle:
    """A client, packed."""

    data: bytes
    """tar of the client's folder."""
    tree_hash: str
    template: str
    """Where it comes from: a template's name, ``code`` (the user's folder), ``written`` (by a language model)."""
    sealed: SealedBundle | None = None
    """None: its task is a registered one."""


def client_bundle(task: str) -> ClientBundle:
    """Generate and pack the client of ``task``; the same task gives the same bytes."""
    with tempfile.TemporaryDirectory(prefix="a3r-client-") as scratch:
        folder = generate_client(task, Path(scratch) / "client")
        return ClientBundle(pack_tree(folder), tree_hash(folder), TASKS[task].template)


def build_blueprints(
    goal: GoalSpec,
    plan: StagePlan,
    stage: int,
    clients: Mapping[str, ClientBundle],
    goal_dir: Path,
) -> list[Blueprint]:
    """One blueprint for each row of the design, in its order.

    Args:
        goal: the goal.
        plan: the stage's plan.
        stage: its number, from 1.
        clients: the packed client of each task in the design.
        goal_dir: the goal's folder (a model may be named relative to it).
    """
    fingerprints: dict[tuple[str, str], str] = {}
    out: list[Blueprint] = []
    for row in plan.design:
        cell = cell_settings(goal, row.factors)
        train = train_config(goal, row.factors, blueprint_name(row.factors, stage), goal_dir)
        named = (cell.model, canonical_json([train.engine, train.verl.model_dump(mode="json")]))
        if named not in fingerprints:
            fingerprints[named] = _fingerprint(find_model(cell.model, goal_dir), train)
        server = ServerSpec(
            train=train,
            model_fingerprint=fingerprints[named],
            gpus=cell.resources.gpus,
            environment=cell.server_environment,
        )
        out.append(_blueprint(goal, plan, row, stage, cell, clients[cell.task], server))
    return out


def _fingerprint(model: Path, train: TrainConfig) -> str:
    """Name of the base weights, as the engine of ``train`` names them; empty when only the engine can say."""
    if train.engine == "verl":
        return verl_fingerprint(model, train)
    return weights_fingerprint(model)


def tasks_of(goal: GoalSpec, plan: StagePlan) -> tuple[str, ...]:
    """Every task that a design plays, in its order; more than one when the task is a factor."""
    return tuple(dict.fromkeys(cell_settings(goal, row.factors).task for row in plan.design))


def blueprint_name(factors: dict[str, Scalar], stage: int) -> str:
    """``s1-b16-cap10``."""
    return "-".join([f"s{stage}", *(short_label(name, value) for name, value in factors.items())])


def _evaluator(goal: GoalSpec, name: str, sealed: SealedBundle | None) -> EvaluatorSpec:
    if sealed is not None:
        return EvaluatorSpec(
            task=name,
            items=goal.metric.items,
            item_seed=ITEM_SEED,
            item_set_hash=sealed.item_set_hash,
            source_hash=sealed.tree_hash,
            artifact=sealed.artifact,
            rounds=rounds_of(goal),
        )
    task = TASKS[name].scored
    return EvaluatorSpec(
        task=name,
        items=goal.metric.items,
        item_seed=ITEM_SEED,
        item_set_hash=task.item_set_hash(goal.metric.items, ITEM_SEED),
        source_hash=task.source_hash(),
        rounds=rounds_of(goal),
    )


def client_arguments(goal: GoalSpec, own: Mapping[str, Any]) -> dict[str, Any]:
    """What a client is told: its cell's ``own`` arguments, and what the campaign itself decides."""
    return {
        "parallel": PARALLEL,
        **own,
        "held_out_items": goal.metric.items,
        "held_out_seed": ITEM_SEED,
    }


def _client(goal: GoalSpec, cell: CellSettings, client: ClientBundle) -> ClientSpec:
    arguments = client_arguments(goal, cell.arguments)
    return ClientSpec(
        template=client.template,
        tree_hash=client.tree_hash,
        entry=ENTRY,
        arguments=arguments,
        environment=cell.environment,
        sandbox=cell.sandbox,
    )


def _blueprint(
    goal: GoalSpec,
    plan: StagePlan,
    row: DesignRow,
    stage: int,
    cell: CellSettings,
    client: ClientBundle,
    server: ServerSpec,
) -> Blueprint:
    where = ", ".join(f"{k} = {v}" for k, v in row.factors.items())
    return Blueprint(
        name=blueprint_name(row.factors, stage),
        purpose=f"{plan.kind.capitalize()} stage: measure the gain at {where}. {plan.question}",
        hypothesis=row.reason,
        predicted_outcome=" ".join(plan.predictions),
        factors=dict(row.factors),
        fixed=dict(goal.settings),
        servers=(server,),
        clients=(_client(goal, cell, client),),
        evaluator=_evaluator(goal, cell.task, client.sealed),
        metric=MetricSpec(
            name=goal.metric.name,
            direction=goal.metric.direction,
            protocol=client.sealed.protocol if client.sealed else TASKS[cell.task].protocol,
        ),
        seeds=row.seeds,
        limits=cell.limits,
        resources=cell.resources,
        stop_rules=goal.stop_rules,
        notes=plan.stop_rule,
    )
