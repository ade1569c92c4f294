"""The part of ``blueprint.md`` that people read: written from the blueprint, never read back."""

from __future__ import annotations

import json
from typing import Any

from a3r.blueprints.model import Blueprint

HASH_LABEL = "Content hash"


def write_prose(blueprint: Blueprint) -> str:
    """Return the Markdown below the front matter; the same blueprint gives the same text."""
    parts = [
        f"# Blueprint {blueprint.name}",
        "Written from the front matter above, which alone counts: edit it there. An edit voids the review.",
        f"{HASH_LABEL}: `{blueprint.content_hash()}`  \nCell hash: `{blueprint.cell_hash()}`",
        _section("Purpose", blueprint.purpose),
        _section("Hypothesis", blueprint.hypothesis),
        _section("Predicted outcome", blueprint.predicted_outcome),
        _section("What differs from its siblings", _table(blueprint.factors)),
        _section("What is fixed", _table(blueprint.fixed)),
        _section("Servers", _servers(blueprint)),
        _section("Clients", _clients(blueprint)),
        _section("Evaluation", _evaluation(blueprint)),
        _section("Seeds and limits", _limits(blueprint)),
        _section("Notes", blueprint.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body.strip()}" if body.strip() else ""


def _table(values: dict[str, Any]) -> str:
    if not values:
        return ""
    rows = [f"| {_cell(key)} | {_cell(_value(value))} |" for key, value in values.items()]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])


def _servers(blueprint: Blueprint) -> str:
    lines: list[str] = []
    for server in blueprint.servers:
        train = server.train
        lines.append(
            f"- `{server.name}`: model `{train.model.path}`, {train.algorithm.name}, learning rate "
            f"{_value(train.optimizer.lr)}, {train.batch.tasks} groups of {train.batch.repeat} episodes a step "
            f"({train.batch.policy.value}), answers of at most {train.sampling.max_response_tokens} tokens, "
            f"{train.stop_at_step} steps, GPUs: {server.gpus}"
        )
    return "\n".join(lines)


def _clients(blueprint: Blueprint) -> str:
    return "\n".join(
        f"- `{client.name}`: template `{client.template}`, entry `{client.entry}` on server `{client.server}`, "
        f"code `{client.tree_hash[:12]}`; on failure: {client.on_failure}"
        for client in blueprint.clients
    )


def _evaluation(blueprint: Blueprint) -> str:
    evaluator, metric = blueprint.evaluator, blueprint.metric
    lines = [
        f"- primary metric: `{metric.name}` ({metric.direction.value})",
        f"- task `{evaluator.task}`, {evaluator.items} held-out items a round, rounds: {', '.join(evaluator.rounds)}",
    ]
    if metric.protocol:
        lines.append(f"- protocol: {metric.protocol}")
    return "\n".join(lines)


def _limits(blueprint: Blueprint) -> str:
    limits = blueprint.limits
    return "\n".join(
        [
            f"- seeds: {', '.join(str(seed) for seed in blueprint.seeds)}",
            f"- at most {_value(limits.max_time_s)} s and {limits.max_attempts} attempts a run",
            f"- first step within {_value(limits.first_step_deadline_s)} s, no pause over {_value(limits.stall_deadline_s)} s",
        ]
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
