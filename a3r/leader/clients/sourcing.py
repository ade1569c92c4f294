"""Which client each task of a stage gets: its template's, the user's own, or one that a job has written; repaired as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from a3r.core.hashing import bytes_hash
from a3r.core.types import RevisionState
from a3r.leader.clients.writing import own_client
from a3r.leader.experiment import ClientBundle, SealedBundle, client_bundle
from a3r.leader.tasks import TASKS
from a3r.leader.tick import Tick
from a3r.store.store import Store

KIND = "write_client"


def clients_for(tick: Tick, tasks: Sequence[str]) -> dict[str, ClientBundle] | None:
    """The client of each task; None while one is being made.

    Raises:
        JobFailed: one could not be made.
    """
    found: dict[str, ClientBundle] = {}
    for task in tasks:
        if task in TASKS and not _is_own(tick, task):
            bundle = client_bundle(task)
        else:
            result = tick.result_of(KIND, task, {"task": task})
            if result is None:
                return None
            bundle = _from_job(tick.store, result)
        found[task] = _as_repaired(tick, bundle)
    return found


def _is_own(tick: Tick, task: str) -> bool:
    return task == tick.goal.task and own_client(tick.goal, tick.goal_dir) is not None


def _from_job(store: Store, result: dict[str, Any]) -> ClientBundle:
    sealed = SealedBundle(
        artifact=str(result["evaluator_sha"]),
        tree_hash=str(result["evaluator_tree"]),
        item_set_hash=str(result["item_set_hash"]),
        protocol=str(result["protocol"]),
    )
    return ClientBundle(
        data=store.artifact(str(result["client_sha"])),
        tree_hash=str(result["client_tree"]),
        template=str(result["template"]),
        sealed=sealed if sealed.artifact else None,
    )


def _as_repaired(tick: Tick, bundle: ClientBundle) -> ClientBundle:
    """The client as the campaign's repairs have left it: a later stage begins with what the earlier one ended with."""
    rows = [r for r in tick.store.revisions(tick.id) if r.state is RevisionState.APPROVED]
    after = {r.base_sha: r for r in rows}
    sha, seen = bytes_hash(bundle.data), set[str]()
    found = bundle
    while sha in after and sha not in seen:
        seen.add(sha)
        row = after[sha]
        sha = row.artifact_sha
        found = replace(found, data=tick.store.artifact(sha), tree_hash=row.tree_hash)
    return found
