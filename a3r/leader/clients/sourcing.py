"""Which client each task of a stage gets: its template's, the user's own, or one that a job has written; repaired as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from a3r.core.hashing import bytes_hash
from a3r.core.types import RevisionState
from a3r.leader.clients.remedy import Next, before_a_stage
from a3r.leader.clients.writing import own_client
from a3r.leader.experiment import ClientBundle, SealedBundle, client_bundle
from a3r.leader.tasks import TASKS
from a3r.leader.tick import Tick
from a3r.store.store import Store

KIND = "write_client"


def clients_for(tick: Tick, tasks: Sequence[str]) -> dict[str, ClientBundle] | None:
    """The client of each task; None while one is being made or mended, or waits for a person.

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
        repaired = _as_repaired(tick, bundle)
        if repaired is None:
            return None
        found[task] = repaired
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


def _as_repaired(tick: Tick, bundle: ClientBundle) -> ClientBundle | None:
    """The client as the campaign's repairs have left it: a later stage begins with what the earlier one ended with."""
    sha, seen = bytes_hash(bundle.data), set[str]()
    found = bundle
    while sha not in seen:
        seen.add(sha)
        remedy = before_a_stage(tick, sha)
        if remedy is Next.WAIT:
            return None
        rows = tick.store.revisions(tick.id)
        after = {r.base_sha: r for r in rows if r.state is RevisionState.APPROVED}
        if sha in after:
            row = after[sha]
            sha = row.artifact_sha
            found = replace(found, data=tick.store.artifact(sha), tree_hash=row.tree_hash)
    return found
