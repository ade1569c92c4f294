"""Which code brought a result: a cell's estimates come from one revision of its client, never from several.

A repair while a stage runs leaves runs that succeeded before it beside runs that succeeded after it. They are results of different
code, so only those of the newest revision with a result count, whatever the others say. Where the budget allows it, the leader
runs the others again (``a3r.leader.renewal``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from a3r.core.types import RunState
from a3r.report.records import BlueprintRecord, Records, RunRecord

K = TypeVar("K")


class Definition(NamedTuple):
    """What a run's result is a result of; two runs of a cell are pooled only when theirs are equal."""

    cell_hash: str
    """With the client that the blueprint's runs ended with."""
    client: str
    """Tree hash of the client that this run's accepted attempt ran; empty when the blueprint has none."""


def definition_of(
    records: Records, blueprint: BlueprintRecord, run: RunRecord | None
) -> Definition:
    """Of the accepted attempt; of the blueprint's own client while there is none.

    An attempt that names a revision that the records do not hold has a client of its own kind, equal to no other's.
    """
    attempt = run.accepted() if run is not None else None
    number = attempt.revision if attempt is not None else 0
    if number:
        trees = {r.ordinal: r.tree_hash for r in records.revisions_of(blueprint.id)}
        return Definition(blueprint.cell_hash, trees.get(number, f"revision {number}"))
    clients: list[dict[str, Any]] = blueprint.document.get("clients") or [{}]
    return Definition(blueprint.cell_hash, str(clients[0].get("tree_hash", "")))


def newest_definitions(
    records: Records, cell_of: Callable[[BlueprintRecord], K]
) -> dict[K, Definition]:
    """Of each cell with a result: the last one by stage, then by revision of the client. No result is looked at."""
    runs: dict[str, list[tuple[int, Definition]]] = {}
    for run in records.runs:
        attempt = run.accepted()
        if run.state == RunState.SUCCEEDED:
            defined = definition_of(records, records.blueprint(run.blueprint_id), run)
            revision = attempt.revision if attempt is not None else 0
            runs.setdefault(run.blueprint_id, []).append((revision, defined))
    ordered = sorted(records.blueprints, key=lambda b: records.stage(b.stage_id).ordinal)
    return {cell_of(b): max(runs[b.id], key=lambda r: r[0])[1] for b in ordered if b.id in runs}


def origins(records: Records) -> dict[str, str]:
    """Tree hash of a client -> that of the client which it was repaired from, over any number of repairs; itself when it never was.

    Tasks have clients of their own by design; only what a repair changed is a difference that nobody planned.
    """
    found: dict[str, str] = {}
    for blueprint in sorted(records.blueprints, key=lambda b: records.stage(b.stage_id).ordinal):
        own = definition_of(records, blueprint, None).client
        first = found.setdefault(own, own)
        for revision in records.revisions_of(blueprint.id):
            found.setdefault(revision.tree_hash, first)
    return found


def mixed_text(clients: Iterable[tuple[str, str]]) -> str:
    """Of (tree hash, its origin): says that what is compared ran different revisions of one client; empty when it did not."""
    trees: dict[str, dict[str, None]] = {}
    for tree, origin in clients:
        trees.setdefault(origin, {})[tree] = None
    mixed = next((list(found) for found in trees.values() if len(found) > 1), None)
    if mixed is None:
        return ""
    names = ", ".join(tree[:12] for tree in mixed)
    return f"these cells ran different revisions of the client ({names}), so a difference between them may be the repair's"
